"""What runs after a call: the tail of each program, executed, does what the program itself went on to do."""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import linecache
import random
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any, ClassVar, NamedTuple

import pytest

from whynan.replay.continuation.code import Tail, compile_tail, owner_of, tail_after, tail_from
from whynan.source.syntax import Span

FILENAME = "/programs/marked.py"


class Program:
    """A program that is run once, and marked at its call number `at` of ``step()``; `marking` is called there."""

    def __init__(self, source: str, at: int = 1, marking: Callable[[], object] = int) -> None:
        self.source = textwrap.dedent(source)
        self.tree = ast.parse(self.source)
        self.at, self.marking = at, marking
        self.steps = 0
        self.trace: list[object] = []
        self.frame: FrameType | None = None
        self.namespace: dict[str, Any] = {
            "__name__": "marked",
            "step": self.step,
            "say": self.say,
            "Enter": self.enter,
            "Items": Items,
        }

    def go(self) -> None:
        exec(compile(self.source, FILENAME, "exec", dont_inherit=True), self.namespace)

    @property
    def expected(self) -> list[object]:
        """What the program said behind the mark, before a tail was run."""
        return self.trace[self.marked_at :]

    def step(self) -> int:
        self.steps += 1
        self.say("step", self.steps)
        if self.steps == self.at and self.frame is None:
            frame = sys._getframe(1)
            self.frame, self.code = frame, frame.f_code
            line, end_line, column, end_column = next(
                itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
            )
            assert line is not None
            assert end_line is not None
            assert column is not None
            assert end_column is not None
            self.span = Span(line, end_line, column, end_column)
            self.values = {name: copied(value) for name, value in frame.f_locals.items()}
            self.globals = dict(frame.f_globals)
            self.marked_at = len(self.trace)
            self.marking()
        return self.steps

    def say(self, *values: object) -> None:
        self.trace.append(copy.deepcopy(values))

    def enter(self, name: str) -> Enter:
        return Enter(self, name)

    def tail(self, cut: Callable[..., Tail | None] = tail_after) -> Tail:
        owner = owner_of(self.tree, self.code)
        assert owner is not None
        tail = cut(owner, self.span)
        assert tail is not None
        return tail

    def run(self, tail: Tail, items: dict[int, Any], *, cut_after: bool = True) -> Any:
        """Run a tail with nothing bound but what is live, and the items of its loops."""
        self.trace.clear()
        self.steps = self.at if cut_after else self.at - 1
        given = {f"_whynan_items_{k}": value for k, value in items.items()}
        bound = {name: self.values[name] for name in tail.live if name in self.values}
        if self.code.co_name == "<module>":
            namespace = {"__name__": "marked", "Items": Items} | bound | given
            return exec(compile_tail(tail), namespace)
        free = self.code.co_freevars
        arguments = {name: value for name, value in bound.items() if name not in free} | given
        code = compile_tail(tail, parameters=set(arguments), free=free)
        closure = tuple(CellType(self.values[name]) for name in code.co_freevars)
        return FunctionType(code, self.globals, code.co_name, None, closure)(
            *(arguments[name] for name in code.co_varnames[: code.co_argcount])
        )


def marked(source: str, at: int = 1) -> Program:
    """A program that has run to its end."""
    program = Program(source, at)
    program.go()
    assert program.frame is not None, "the mark was not reached"
    return program


class Enter:
    """A context manager that says when it is entered and left."""

    def __init__(self, program: Program, name: str) -> None:
        self.program, self.name = program, name

    def __enter__(self) -> str:
        self.program.say("enter", self.name)
        return self.name

    def __exit__(self, *exception: object) -> None:
        self.program.say("exit", self.name)


class Counted:
    """1, 2, ... without an end."""

    def __iter__(self) -> Iterator[int]:
        return itertools.count(1)


def copied(value: Any) -> Any:
    """A value as it was at the mark, where the programs change one."""
    changed = isinstance(value, list) or (type(value).__module__ == "marked")
    return copy.deepcopy(value) if changed else value


def in_function(source: str) -> str:
    return f"def f():\n{textwrap.indent(textwrap.dedent(source), '    ')}\nresult = f()\n"


class Case(NamedTuple):
    """A body that stands both in a function and in a module, the step to mark, and the items that were left."""

    source: str
    at: int = 1
    items: dict[int, Any] = {}  # noqa: RUF012
    entered: tuple[str, ...] = ()


EVERYWHERE: dict[str, Case] = {
    "straight": Case("a = 1\nb = 2\nstep()\nsay(a)\nb = 3\nsay(b)\n"),
    "the end": Case("say(1)\nstep()\n"),
    "one line": Case("a = 1; step(); a += 1; say(a)\n"),
    "umlauts": Case("größe = 'ä'; step(); say(größe)\n"),
    "several lines": Case("a = [\n  1,\n  step(\n  ),\n]\nsay(2)\n"),
    "if": Case("a = 1\nif a:\n    step()\n    say(a)\nelse:\n    say('else')\nsay('after')\n"),
    "elif": Case(
        "a = 1\nif not a:\n    say(0)\nelif a:\n    step()\n    say(1)\nelse:\n    say('else')\nsay('after')\n"
    ),
    "match": Case(
        "a = [1, 2]\nmatch a:\n    case []:\n        say(0)\n"
        "    case [x, y]:\n        step()\n        say(x, y)\n    case _:\n        say('other')\nsay('after')\n"
    ),
    "for": Case("for i in range(4):\n    say(i)\n    step()\n    say(i)\nsay('after', i)\n", 2, {0: [2, 3]}),
    "for without more": Case("for i in range(4):\n    step()\n    say(i)\nsay('after', i)\n", 4, {0: []}),
    "items are asked for one at a time": Case(
        "for i in range(3):\n    step()\n    if i == 1:\n        break\nsay(i)\n", 1, {0: Counted()}
    ),
    "for else": Case("for i in range(3):\n    step()\n    say(i)\nelse:\n    say('else')\nsay('after')\n", 2, {0: [2]}),
    "break in the rest": Case(
        "for i in range(3):\n    step()\n    if i == 1:\n        break\n    say(i)\nelse:\n    say('else')\nsay(i)\n",
        2,
        {0: [2]},
    ),
    "break later": Case(
        "for i in range(3):\n    step()\n    if i == 1:\n        break\n    say(i)\nelse:\n    say('else')\nsay(i)\n",
        1,
        {0: [1, 2]},
    ),
    "continue in the rest": Case(
        "for i in range(4):\n    step()\n    if i % 2:\n        continue\n    say(i)\nelse:\n    say('else')\nsay(i)\n",
        2,
        {0: [2, 3]},
    ),
    "enumerate": Case("for i, x in enumerate('abc'):\n    step()\n    say(i, x)\nsay(i, x)\n", 2, {0: [(2, "c")]}),
    "while": Case("n = 0\nwhile n < 4:\n    n += 1\n    step()\n    say(n)\nelse:\n    say('else')\nsay('after')\n", 2),
    "while break": Case(
        "n = 0\nwhile True:\n    n += 1\n    step()\n    if n == 3:\n        break\n    say(n)\n"
        "else:\n    say('else')\nsay(n)\n",
        3,
    ),
    "while continue": Case(
        "n = 0\nwhile n < 5:\n    n += 1\n    step()\n    if n == 2:\n        continue\n    say(n)\n"
        "else:\n    say('else')\n",
        2,
    ),
    "nested loops": Case(
        "for e in range(3):\n    total = 0\n    for i in range(3):\n        total += i\n"
        "        step()\n        say(e, i, total)\n"
        "    else:\n        say('inner', total)\n    say('epoch', e)\nelse:\n    say('outer')\nsay('end', e, i)\n",
        5,
        {0: [2], 1: [2]},
    ),
    "inner else breaks the outer": Case(
        "for e in range(3):\n    for i in range(2):\n        step()\n    else:\n        say(e)\n"
        "        break\n    say('not')\n"
        "else:\n    say('nor this')\nsay('end')\n",
        1,
        {0: [1], 1: [1, 2]},
    ),
    "inner break, outer continue": Case(
        "for e in range(3):\n    for i in range(3):\n        step()\n        if i == 1:\n"
        "            break\n        say(e, i)\n"
        "    else:\n        say('else')\n    if e == 1:\n        continue\n    say('epoch', e)\nsay('end', i)\n",
        4,
        {0: [2], 1: [2]},
    ),
    "while in for": Case(
        "for e in range(3):\n    n = 2\n    while n:\n        n -= 1\n        step()\n"
        "        say(e, n)\n    say('epoch')\n",
        3,
        {1: [2]},
    ),
    "the else of a loop": Case("for i in range(2):\n    say(i)\nelse:\n    step()\n    say('else')\nsay('end')\n"),
    "with in a loop": Case(
        "for i in range(3):\n    with Enter('body'):\n        step()\n        say(i)\n    say('out')\n",
        3,
        {0: []},
        ("body",),
    ),
    "a loop that leaves through finally": Case(
        "for i in range(3):\n    try:\n        step()\n        if i == 1:\n            continue\n        say(i)\n"
        "    finally:\n        say('finally', i)\n    say('end', i)\n",
        2,
        {0: [2]},
    ),
    "finally": Case("a = 1\ntry:\n    step()\n    say(a)\nfinally:\n    say('finally')\nsay('end')\n"),
    "finally behind the call": Case("try:\n    step()\nfinally:\n    say('finally')\nsay('end')\n"),
    "except": Case(
        "a = 0\nb = 5\ntry:\n    step()\n    b = 1 // a\nexcept ZeroDivisionError as e:\n    say('caught', b)\n"
        "else:\n    say('else')\nsay('end')\n"
    ),
    "except*": Case("try:\n    step()\n    int('a')\nexcept* ValueError:\n    say('caught')\nsay('end')\n"),
    "the else of a try": Case(
        "try:\n    say(0)\nexcept ZeroDivisionError:\n    say('caught')\nelse:\n    step()\n    say('else')\n"
        "finally:\n    say('finally')\nsay('end')\n"
    ),
    "comprehension": Case("n = 3\nx = 9\nstep()\nsay([x + n for x in range(n)], x)\n"),
    "walrus": Case("n = 3\nstep()\nif (m := n + 1) > 2:\n    say(m)\nsay([k := m + i for i in range(n)], k)\n"),
    "augmented": Case("n = 3\nstep()\nn += 1\nsay(n)\n"),
    "the value of the call": Case("n = 3\nm = n + step()\nm = n\nsay(m)\n"),
    "lambda": Case("n = 3\nstep()\ng = lambda k=n: k + n\nn = 4\nsay(g())\n"),
    "class": Case("n = 3\nm = 4\nstep()\nclass C:\n    a = n\n    b = a + m\nsay(C.a, C.b)\n"),
    "del": Case("n = 3\nstep()\ndel n\ntry:\n    n\nexcept NameError as e:\n    say(type(e).__mro__[1].__name__)\n"),
    "format": Case("n = 3.5\nw = 8\nstep()\nsay(f'{n!r:>{w}} {w=}')\n"),
    "import": Case("step()\nimport os.path as p, math\nfrom math import sqrt as root\nsay(p.sep, math.pi, root(4))\n"),
    "star": Case("a = [1, 2]\nd = {'k': 3}\nstep()\nsay(*a, (lambda k: k)(**d))\n"),
}

IN_FUNCTION: dict[str, Case] = {
    "with": Case(
        """
        def f():
            with Enter('a') as a, Enter('b'):
                say(a)
                with Enter('c'):
                    step()
                    say(a)
                say('between')
            return 5
        result = f()
        """,
        1,
        {},
        ("a", "b", "c"),
    ),
    "return": Case(
        """
        def f(a, *args, k=3, **kwargs):
            for i in range(3):
                try:
                    step()
                    if i == 1:
                        return (a, args, k, kwargs, i)
                finally:
                    say('finally', i)
        result = f(1, 2, q=4)
        """,
        1,
        {0: [1, 2]},
    ),
    "method": Case("""
        class Base:
            def fit(self, n):
                say('base', n)
                return n
        class _Trainer(Base):
            __seed = 7
            def __init__(self):
                self.__x = 1
            def fit(self, n):
                __local = n
                step()
                self.__x += __local
                say(self.__x, self.__seed, __class__.__name__)
                __other = super().fit(__local)
                return [super(_Trainer, self).fit(__other) for _ in range(1)]
        result = _Trainer().fit(3)
        """),
    "super in the rest, and self not": Case("""
        class A:
            def __init__(this, a):
                say(a, type(this).__name__)
        class B(A):
            def __init__(this, a):
                step()
                super().__init__(a)
        B(3)
        """),
    "private method": Case("""
        class C:
            @staticmethod
            def __f(__a):
                step()
                return [__a for _ in range(2)]
            def g(self):
                return self.__f(4)
        result = C().g()
        """),
    "nonlocal": Case("""
        def outer():
            n, m, unread = 1, 2, 3
            def f():
                nonlocal n
                step()
                n += m
                def g():
                    nonlocal n
                    n *= 2
                    return n
                say(g(), n, m)
                return n
            return f()
        result = outer()
        """),
    "nonlocal declared late": Case("""
        def outer():
            n = 1
            def f():
                step()
                nonlocal n
                n = n + 1
                return n
            return f()
        result = outer()
        """),
    "global": Case("""
        n, m = 1, 2
        def f():
            global n
            n = 5
            step()
            say(n)
            n = 6
            say(n, m)
            return n
        result = f()
        """),
    "global declared in the loop": Case(
        """
        def f():
            for i in range(3):
                global n
                n = i
                step()
                say(n)
            return n
        result = f()
        """,
        2,
        {0: [2]},
    ),
    "nested function": Case("""
        n = 'global'
        def f():
            n = 3
            step()
            def g():
                def h():
                    return n
                return h()
            say(g())
            n = 4
            return g()
        result = f()
        """),
    "a local without a value": Case("""
        n = 'global'
        def f():
            step()
            try:
                say(n)
            except UnboundLocalError:
                say('unbound')
            n = 1
            return n
        result = f()
        """),
    "a local that only a branch stores": Case("""
        n = 'global'
        def f(fill):
            if fill:
                n = 1
            step()
            try:
                return n
            except UnboundLocalError:
                return 'unbound'
        result = f(False)
        """),
    "nested loops return": Case(
        """
        def f(rows):
            for r, row in enumerate(rows):
                for c, x in enumerate(row):
                    step()
                    if x > 4:
                        return r, c
                    say(r, c, x)
        result = f([[1, 2, 3], [1, 2, 3], [4, 5]])
        """,
        4,
        {0: [(1, 2), (2, 3)], 1: [(2, [4, 5])]},
    ),
}


def cases() -> Iterator[Any]:
    for name, case in EVERYWHERE.items():
        yield pytest.param(case, id=f"{name} (module)")
        yield pytest.param(case._replace(source=in_function(case.source)), id=f"{name} (function)")
    for name, case in IN_FUNCTION.items():
        yield pytest.param(case, id=name)


@pytest.mark.parametrize("case", list(cases()))
def test_the_tail_goes_on_as_the_program_did(case: Case) -> None:
    program = marked(case.source, case.at)
    expected = program.expected
    result = program.run(program.tail(), case.items)
    # what was entered before the mark is entered again, and nothing else is
    assert program.trace == [*(("enter", name) for name in case.entered), *expected]
    assert result == program.namespace.get("result")


PLAIN = [param for param in cases() if not param.values[0].entered]


@pytest.mark.parametrize("case", PLAIN)
def test_the_tail_from_a_call_makes_the_call_again(case: Case) -> None:
    program = marked(case.source, case.at)
    expected = [("step", program.at), *program.expected]
    assert program.run(program.tail(tail_from), case.items, cut_after=False) == program.namespace.get("result")
    assert program.trace == expected


class Written:
    """Random programs: nested blocks that store and read five names, with one ``step()`` somewhere."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loops = 0

    def program(self) -> str:
        body = "step()"
        for _ in range(self.random.randint(1, 4)):
            body = self.around("\n".join([*self.simple(in_loop=False), body, *self.simple(in_loop=False)]))
        return "\n".join(
            [
                self.random.choice(["a = b = 0", "a = b = c = d = e = 0"]),
                body,
                *self.simple(in_loop=False),
                "say('end')",
            ]
        )

    def around(self, body: str) -> str:
        """One compound statement around the block with the call."""
        self.loops += 1
        n, inner = self.loops, textwrap.indent(body, "    ")
        other = textwrap.indent("\n".join(self.simple(in_loop=False)), "    ")
        left = textwrap.indent("\n".join(self.simple(in_loop=True)), "    ")
        match self.random.randrange(6):
            case 0:
                return f"if True:\n{inner}\nelse:\n{other}"
            case 1:
                return f"try:\n{inner}\nfinally:\n{other}"
            case 2:
                left = left.replace("break", "1 / 0").replace("continue", "1 / 0")
                return f"try:\n{inner}\n{left}\nexcept Exception:\n{other}"
            case 3:
                return f"w{n} = 0\nwhile w{n} < 3:\n    w{n} += 1\n{inner}\n{left}\nelse:\n{other}"
            case _:
                name = self.name()
                return f"for {name} in Items({n}):\n{left}\n{inner}\n{left}\nelse:\n{other}"

    def simple(self, *, in_loop: bool) -> list[str]:
        return [self.statement(in_loop) for _ in range(self.random.randint(1, 3))]

    def statement(self, in_loop: bool) -> str:
        a, b, c = self.name(), self.name(), self.name()
        number = self.random.randrange(9)
        several = [
            f"say('{a}', {a})",
            f"{a} = {b} + {number}",
            f"{a} += {number}",
            f"if {a} % 2: {b} = {number}",
            f"for {a} in range({b} % 3): {c} = {a}",
            f"say([{a} + {b} for {a} in range(2)])",
            f"say(({a} := {number}) + {b})",
            f"{a} = (lambda {b}: {b} + {c})({number})",
            f"try: {a} = {number} // ({b} % 2)\nexcept ZeroDivisionError: say({c})",
            f"del {a}",
            *([f"if {a} % 3 == 1: {self.random.choice(['break', 'continue'])}"] * 4 if in_loop else []),
        ]
        return self.random.choice(several)

    def name(self) -> str:
        return self.random.choice("abcde")


class Items:
    """An iterable that knows what is left of it."""

    left: ClassVar[dict[int, list[int]]] = {}

    def __init__(self, loop: int) -> None:
        self.loop = loop

    def __iter__(self) -> Iterator[int]:
        for i in range(4):
            self.left[self.loop] = list(range(i + 1, 4))
            yield i


def outcome(run: Callable[[], object]) -> str:
    try:
        run()
    except (NameError, ZeroDivisionError) as error:
        return type(error).__name__
    return "completed"


@pytest.mark.parametrize("seed", range(200))
def test_the_tail_of_any_program_goes_on_as_it_did(seed: int) -> None:
    source = Written(seed).program()
    for text in (source, in_function(source)):
        left: list[dict[int, list[int]]] = []
        program = Program(text, 1 + seed % 3, lambda: left.append(dict(Items.left)))
        ended = outcome(program.go)
        if program.frame is not None:
            tail, expected = program.tail(), program.expected
            items = {k: left[0][int(ast.unparse(loop.iter)[6:-1])] for k, loop in enumerate(tail.loops) if loop.iter}
            assert outcome(lambda: program.run(tail, items)) == ended
            assert program.trace == expected


def test_a_wrong_item_is_seen() -> None:
    program = marked(EVERYWHERE["for"].source, 2)
    expected = program.expected
    program.run(program.tail(), {0: [3, 3]})
    assert program.trace != expected


def test_after_a_return_only_what_leaving_passes_is_left() -> None:
    program = marked("""
        def f():
            for i in range(3):
                try:
                    return step()
                finally:
                    say('finally', i)
            say('never')
        result = f()
        """)
    assert program.run(program.tail(), {0: [1, 2]}) is None
    assert program.trace == [("finally", 0)]


@pytest.mark.parametrize("name", ["for", "nested loops", "while", "walrus", "comprehension"])
def test_the_code_keeps_the_positions_of_the_file(name: str) -> None:
    case = EVERYWHERE[name]
    for source in (case.source, in_function(case.source)):
        program = marked(source, case.at)
        code = compile_tail(program.tail(), parameters=[f"_whynan_items_{k}" for k in range(2)])
        known = set(positions(program.code))
        assert set(positions(code)) - known <= {(program.code.co_firstlineno,) * 2 + (0, 0)} | heads(program.tree)
        assert (code.co_filename, code.co_name) == (FILENAME, program.code.co_name)


def positions(code: CodeType) -> Iterator[tuple[int | None, ...]]:
    yield from (position for position in code.co_positions() if position[0] and position[2] is not None)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from positions(constant)


def heads(tree: ast.Module) -> set[tuple[int | None, ...]]:
    """The spans of what decides about loops."""
    nodes = [
        n.iter if isinstance(n, ast.For) else n.test for n in ast.walk(tree) if isinstance(n, (ast.For, ast.While))
    ]
    return {(n.lineno, n.end_lineno, n.col_offset, n.end_col_offset) for n in nodes}


def test_a_traceback_of_the_tail_shows_the_line_and_the_name_of_the_program() -> None:
    source = textwrap.dedent("""
        class C:
            def f(self, n):
                step()
                if n:
                    return (lambda: say(n) or 1 / n)()
        C().f(1)
        """)
    program = marked(source)
    linecache.cache[FILENAME] = (len(source), None, source.splitlines(keepends=True), FILENAME)
    program.values["n"] = "no number"
    try:
        program.run(program.tail(), {})
    except TypeError as error:
        frames = traceback.extract_tb(error.__traceback__)[-2:]
        codes = [frame.f_code.co_qualname for frame, _ in traceback.walk_tb(error.__traceback__)][-2:]
    else:
        pytest.fail("the tail did not divide by a string")
    finally:
        del linecache.cache[FILENAME]
    assert [(frame.lineno, frame.name) for frame in frames] == [(6, "f"), (6, "<lambda>")]
    assert codes == ["C.f", "C.f.<locals>.<lambda>"]


def test_the_features_of_the_file_hold_in_the_tail() -> None:
    source = "{}\ndef f():\n    step()\n    def g(a: nothing): pass\n    return g.__annotations__\nresult = f()\n"
    program = marked(source.format("from __future__ import annotations"))
    assert program.run(program.tail(), {}) == {"a": "nothing"}


def test_cells_are_shared_with_functions_that_were_made_before() -> None:
    program = marked("""
        def f():
            n = 1
            def read():
                return n
            step()
            n = 2
            return read()
        result = f()
        """)
    tail = program.tail()
    code = compile_tail(tail, parameters=["read"], free=["n"])
    cell = CellType(1)
    read = FunctionType(program.values["read"].__code__, {}, "read", None, (cell,))
    assert FunctionType(code, program.namespace, "f", None, (cell,))(read) == program.namespace["result"] == 2
    with pytest.raises(ValueError, match="not both: n"):
        compile_tail(tail, parameters=["n"], free=["n"])


LIVE: dict[str, tuple[str, str]] = {
    "a read": ("say(a)", "say a"),
    "stored first": ("a = 1\nsay(a)", "say"),
    "stored in one branch": ("if t:\n    a = 1\nsay(a)", "say t a"),
    "stored in both branches": ("if t:\n    a = 1\nelse:\n    a = 2\nsay(a)", "say t"),
    "a branch that returns": ("if t:\n    return b\nelse:\n    a = 2\nsay(a)", "say t b"),
    "dead behind a return": ("return a\nsay(b)", "a"),
    "dead behind a raise": ("raise a from c\nsay(b)", "a c"),
    "augmented": ("a += b", "a b"),
    "augmented item": ("a[i] += b", "a b i"),
    "attribute": ("a.x = b", "a b"),
    "chained": ("a = c[a] = 1", "c"),
    "unpacked": ("(a, *b), c[d] = e", "c d e"),
    "del": ("del a", "a"),
    "for": ("for a in b:\n    say(a, c)\n    c = 1", "say b c"),
    "read behind a for": ("for a in b:\n    c = 1\nsay(a, c)", "say a b c"),
    "carried round a loop": ("for i in b:\n    say(d)\n    d = c\n    c = e", "say b c d e"),
    "for else stores": ("for i in b:\n    break\nelse:\n    c = 1\nsay(c)", "say b c"),
    "for else always stores": ("for i in b:\n    pass\nelse:\n    c = 1\nsay(c)", "say b"),
    "continue passes by": ("for i in b:\n    if i: continue\n    c = 1\n    say(c)", "say b"),
    "while": ("while a:\n    a = f(b)\n    b = 1", "a b f"),
    "while true": ("while True:\n    a = f()\n    if a: break\nsay(a)", "say f"),
    "while that may end": ("while t():\n    a = f()\nsay(a)", "say f a t"),
    "one item": ("for i in (x,):\n    a = 1\nsay(a, i)", "say x"),
    "with": ("with o(c) as a, p(a, d) as (e, f.x):\n    b = 1\nsay(a, b, e)", "say o c p d f"),
    "suppressed": ("with contextlib.suppress(E):\n    b = 1\nsay(b)", "say contextlib E b"),
    "try": ("try:\n    a = f()\nexcept E as e:\n    say(a, e)\nsay(e)", "say f a E e"),
    "the name of a handler": ("try:\n    f()\nexcept E as e:\n    say(e)", "say f E"),
    "only a break through finally": (
        "for i in b:\n    try:\n        break\n    finally:\n        x = 1\nelse:\n    return 1\nsay(y)",
        "say b y",
    ),
    "only a break in an inner else": (
        "for i in b:\n    for j in c:\n        pass\n    else:\n        break\nelse:\n    return\nsay(y)",
        "say b c y",
    ),
    "try that falls through": ("try:\n    a = f()\nexcept E:\n    a = 1\nsay(a)", "say f E"),
    "try else": ("try:\n    f()\nexcept E:\n    return\nelse:\n    a = 1\nsay(a)", "say f E"),
    "finally": ("try:\n    a = 1\nfinally:\n    say(a)", "say a"),
    "break through finally": ("for i in b:\n    try:\n        break\n    finally:\n        x = 1\n"
    "say(x, y)", "say b x y"),
    "match": ("match s:\n    case [a, P(b)] if g(a):\n        say(a, b, c)\n"
    "    case {'k': d, **r}:\n        say(d, r)", "say s P g c"),
    "match that always stores": ("match s:\n    case 1:\n        a = 1\n    case x:\n        a = x\nsay(a)", "say s"),
    "match that may not": ("match s:\n    case 1:\n        a = 1\nsay(a)", "say s a"),
    "comprehension": ("say([x + a for x in b if x for y in x])", "say a b"),
    "dict comprehension": ("say({k: v + a for k, v in b()})", "say a b"),
    "own name in the iterable": ("say([x for x in x])", "say x"),
    "walrus": ("if (a := f()) > a:\n    say(a)", "say f"),
    "walrus behind and": ("if t and (a := f()):\n    pass\nsay(a)", "say f t a"),
    "walrus in the first of and": ("say((a := f()) and a)", "say f"),
    "walrus in a comparison": ("say(x < (a := f()) < (b := g()), a, b)", "say x f g b"),
    "walrus in a choice": ("say((a := 1) if t else (a := 2), a)", "say t"),
    "walrus in a dict": ("say({x: b, (b := 1): 2})", "say x b"),
    "format": ("say(f'{a:{b}} {(c := 1)} {c}')", "say a b"),
    "nested function": ("def g(p, q=d):\n    l = p + a\n    return l + g(p)\na = 1", "a d"),
    "decorated": ("@deco(a)\ndef g(p: T) -> R: pass", "deco a T R"),
    "lambda": ("g = lambda p, q=d: p + a + q", "a d"),
    "function with nonlocal": ("def g():\n    nonlocal a\n    a += 1", "a"),
    "function that only stores": ("def g():\n    nonlocal a\n    a = 1", ""),
    "class": ("class C(B, metaclass=M):\n    x = a\n    y = x\n    def m(self): return x, b", "B M a b x"),
    "import": ("import a.b, c as d\nfrom e import f\nsay(a, d, f, c)", "say c"),
    "assert": ("assert a, b", "a b"),
    "annotation": ("a: T = b\nc: U", "b"),
    "annotated attribute": ("a.x: T = b", "a b"),
    "super": ("super().f(a)", "super __class__ a"),
    "super in a nested function": ("g = lambda s: super().f(a)", "super __class__ a"),
    "private": ("say(__a, self.__b, __c__)", "say _K__a self __c__"),
    "private in a class in it": ("class D:\n    say(__a)", "say _D__a"),
}  # fmt: skip


def tail_of(source: str, *, after: str = "step()", name: str = "f") -> Tail | None:
    """The tail behind the first place of a text in a source; of the function `name`."""
    tree = ast.parse(source)
    (code,) = (code for code in codes(compile(source, FILENAME, "exec", dont_inherit=True)) if code.co_name == name)
    owner = owner_of(tree, code)
    return None if owner is None else tail_after(owner, span(source, after))


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def span(source: str, text: str) -> Span:
    line, row = next((i, row) for i, row in enumerate(source.splitlines(), 1) if text in row)
    return Span(line, line, row.index(text), row.index(text) + len(text))


def method(body: str) -> str:
    parameters = "(self, __a=0)" if "self" in body else "()"
    nonlocal_a = "        a = 0\n" if "nonlocal" in body else ""
    indented = textwrap.indent(f"step()\n{body}\n", " " * 8)
    return f"class K:\n    def f{parameters}:\n{nonlocal_a}{indented}"


@pytest.mark.parametrize(("body", "names"), LIVE.values(), ids=LIVE)
def test_the_live_names_are_those_read_before_they_are_stored(body: str, names: str) -> None:
    tail = tail_of(method(body))
    assert tail is not None
    assert tail.live == set(names.split())


def test_annotations_count_in_a_module() -> None:
    tail = tail_of("step()\na: T = b\nc: U\n", name="<module>")
    assert tail is not None
    assert tail.live == {"T", "U", "b"}


STORED: dict[str, tuple[str, str]] = {
    "targets": ("a, (b, *c) = d[e] = f.g = 1", "a b c"),
    "loops": ("for a, b in c:\n    d = 1\nwhile e:\n    g = 2", "a b d g"),
    "with": ("with a as b, c as (d, e): pass", "b d e"),
    "except": ("try: a = 1\nexcept E as e: b = 1", "a b e"),
    "imports": ("import a.b, c as d\nfrom e import f as g, h", "a d g h"),
    "walrus": ("say([(a := x) for x in b], lambda: (c := 1))", "a"),
    "definitions": ("def g(p, q=(a := 1)):\n    r = 1\nclass C:\n    s = 1", "a g C"),
    "nested nonlocal": ("a = 0\ndef g():\n    nonlocal a\n    global b\n    a = b = c = 1", "a b g"),
    "the middle function's": ("def g():\n    a = 0\n    def h():\n        nonlocal a\n        a = 1", "g"),
    "match": ("match s:\n    case [a, *b] | {'k': a, **b}: pass\n    case int() as c: pass", "a b c"),
    "augmented and deleted": ("a += 1\ndel b", "a b"),
    "a bare annotation": ("a: int\nb: int = 1", "b"),
    "global": ("global a\na = 1", "a"),
}


@pytest.mark.parametrize(("body", "names"), STORED.values(), ids=STORED)
def test_the_stored_names_are_those_of_every_binding(body: str, names: str) -> None:
    tail = tail_of(method(body))
    assert tail is not None
    assert tail.stored == set(names.split())


def test_the_statement_and_the_function_tell_their_names() -> None:
    tail = tail_of("def f(p, *q):\n    global g\n    g = 1\n    a, b.c = (d := step())\n    e = 1\n    z: int\n")
    assert tail is not None
    assert tail.by_statement == {"a", "d"}
    assert tail.stored == {"e"}
    assert tail.local_names == {"p", "q", "a", "d", "e", "z"}
    assert tail.global_names == {"g"}


LOOPS = """
def f():
    for epoch, (a, [b, c]) in enumerate(epochs):
        while go():
            for x.y, d in zip(p, q):
                for _, _ in rows:
                    u = 1
                    v = step(w := 2)
                    z = 1
            late = 1
"""


def test_the_loops_around_are_told_from_inside_out() -> None:
    tail = tail_of(LOOPS, after="step(w := 2)")
    assert tail is not None
    assert [loop.kind for loop in tail.loops] == ["for", "for", "while", "for"]
    assert [loop.shape for loop in tail.loops] == ["plain", "other call", None, "enumerate"]
    assert [loop.targets for loop in tail.loops] == [("_", "_"), ("d",), (), ("epoch", "a", "b", "c")]
    assert [loop.items for loop in tail.loops] == ["_whynan_items_0", "_whynan_items_1", None, "_whynan_items_3"]
    assert [ast.unparse(loop.iter) for loop in tail.loops if loop.iter] == ["rows", "zip(p, q)", "enumerate(epochs)"]
    assert not tail.live & {"_whynan_items_0", "_whynan_first_0"}
    assert not tail.stored & {"_whynan_items_0", "_whynan_first_0"}


def test_an_item_is_made_from_the_values_of_its_names() -> None:
    tail = tail_of(LOOPS, after="step(w := 2)")
    assert tail is not None
    assert tail.loops[3].item({"epoch": 1, "a": 2, "b": 3, "c": 4, "d": 5}) == (1, (2, (3, 4)))
    with pytest.raises(KeyError, match="epoch"):
        tail.loops[3].item({})
    for loop in tail.loops[:3]:
        assert loop.structure is None
        with pytest.raises(ValueError, match="cannot be told"):
            loop.item({"_": 1, "d": 2})


def test_what_a_loop_stores_before_a_position() -> None:
    tail = tail_of(LOOPS, after="step(w := 2)")
    assert tail is not None
    at = span(LOOPS, "step(w")
    inner, over, around, outer = (loop.stored_before(at.line, at.column) for loop in tail.loops)
    assert inner == {"u", "w"}
    assert over == {"_", "u", "v", "w", "z"}
    assert around == over | {"d"}
    assert outer == around | {"late"}


def test_of_alternatives_only_the_one_at_the_position_stores() -> None:
    source = """
def f():
    for x in y:
        if (t := x):
            a = 1
        else:
            with x as b:
                c = 1
                try:
                    d = 1
                    step()
                    e = 1
                except E:
                    g = 1
        h = 1
"""
    tail = tail_of(source)
    assert tail is not None
    at = span(source, "step()")
    assert tail.loops[0].stored_before(at.line, at.column) == {"t", "b", "c", "d"}


REFUSED: dict[str, str] = {
    "a generator": "def f():\n    step()\n    yield 1\n",
    "a coroutine": "async def f():\n    step()\n",
    "the test of an if": "def f():\n    if step():\n        pass\n",
    "the test of a while": "def f():\n    while step():\n        pass\n",
    "an iterable": "def f():\n    for x in step():\n        pass\n",
    "a context": "def f():\n    with step():\n        pass\n",
    "a default": "def f():\n    def g(x=step()):\n        pass\n",
    "a nested function": "def f():\n    def g():\n        step()\n",
    "a handler": "def f():\n    try:\n        pass\n    except E:\n        step()\n",
    "a finally": "def f():\n    try:\n        pass\n    finally:\n        step()\n",
    "a raise": "def f():\n    raise step()\n",
}


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_what_has_no_tail_is_refused(source: str) -> None:
    assert tail_of(source) is None


def test_a_function_that_holds_a_generator_is_not_one() -> None:
    assert tail_of("def f():\n    step()\n    def g():\n        yield 1\n") is not None


def test_a_function_is_found_by_its_name_and_its_first_line() -> None:
    source = textwrap.dedent("""
        def deco(f): return f
        if deco:
            def f(): a
        else:
            @deco
            @deco
            def f(): b
        class C:
            def f(self):
                class D:
                    def g(self): c
                def g(): d
        h = lambda: [x for x in ()]
        """)
    tree = ast.parse(source)
    found = [(code.co_qualname, owner_of(tree, code)) for code in codes(compile(source, FILENAME, "exec"))]
    texts = [(name, ast.unparse(owner.node.body[-1]), owner.cls) for name, owner in found if owner is not None]
    assert texts[1:] == [
        ("deco", "return f", None),
        ("f", "a", None),
        ("f", "b", None),
        ("C.f", "def g():\n    d", "C"),
        ("C.f.<locals>.D.g", "c", "D"),
        ("C.f.<locals>.g", "d", "C"),
    ]
    assert texts[0][0] == "<module>"


def test_code_of_another_file_has_no_owner() -> None:
    assert owner_of(ast.parse(inspect.getsource(Program)), copied.__code__) is None
