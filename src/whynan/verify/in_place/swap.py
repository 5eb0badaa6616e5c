"""Code swapping: another text of a file runs in place of the one that is loaded."""

from __future__ import annotations

import ast
import difflib
import gc
import linecache
import os
import sys
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from whynan.replay.live_objects import CACHES, SUSPENDED, live_functions, live_objects

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterable, Iterator, Sequence


# -- The code objects of two texts of one file, paired by what they are the code of ------------------------------------


class Pair(NamedTuple):
    """A code object of the old text, and its partner in the new one; None where there is none for certain."""

    old: CodeType
    new: CodeType | None

    @property
    def is_changed(self) -> bool:
        """Whether the two do anything else, beside standing on other lines."""
        return self.new is None or content(self.old) != content(self.new)


def pairs(old: CodeType, new: CodeType) -> Iterator[Pair]:
    """Every code object in `old` with its partner in `new`, the outer before the inner, themselves first.

    Those of one name that stand in the same code are paired in order, if there are as many of them as before; else
    those that do the same, and those between them where it is one on either side.
    """
    yield Pair(old, new)
    before, after = _by_name(old), _by_name(new)
    for name, olds in before.items():
        for one, other in _paired(olds, after.get(name, [])):
            if other is None:
                yield from (Pair(inner, None) for inner in _all(one))
            else:
                yield from pairs(one, other)


def content(code: CodeType) -> tuple[object, ...]:
    """What a code object does, wherever it stands."""
    constants = tuple(content(c) if isinstance(c, CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts)
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_qualname, code.co_code, constants, names, counts


def _by_name(code: CodeType) -> dict[str, list[CodeType]]:
    found: dict[str, list[CodeType]] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.setdefault(constant.co_name, []).append(constant)
    return found


def _paired(olds: Sequence[CodeType], news: Sequence[CodeType]) -> Iterator[tuple[CodeType, CodeType | None]]:
    if len(olds) == len(news):
        yield from zip(olds, news, strict=True)
        return
    matcher = difflib.SequenceMatcher(None, [content(c) for c in olds], [content(c) for c in news], autojunk=False)
    for _, begin, end, begin_new, end_new in matcher.get_opcodes():
        matched = end - begin == end_new - begin_new
        for offset in range(end - begin):
            yield olds[begin + offset], news[begin_new + offset] if matched else None


def _all(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all(constant)


# -- Another text of a file, run in place of the one that a program has loaded; the file itself is not touched ---------


_NO_PARTNER: Final = "it cannot be told which function of the other text it is"
_CAPTURED: Final = "it was made before, and would need other variables of the function around it ({})"
_RUNNING: Final = "it is running, and goes on as it was"
_NOT_ITS_TEXT: Final = "what is loaded was not made from the file as it is"
_NOBODY: Final = "no function of its code is there to be called: made by exec, scripted, or not made yet"


@dataclass(frozen=True, slots=True)
class Swap:
    """How many functions run another code, and, of those whose code is another, what goes on as it was, and why."""

    swapped: int
    left: tuple[str, ...] = ()


@contextmanager
def swap_code(path: str, before: str, after: str | ast.Module) -> Generator[Swap]:
    """Every function that was made from one text of a file runs as another text of it says, while the block runs.

    A function is known by the file, name, line and content of its code, and found wherever it is held: decorated, in a
    class, a closure, a partial. What is cached by ``functools.lru_cache`` is not looked up meanwhile. Modules that the
    other text imports at its top, and the first does not, are there. All is put back at the end, and so are functions
    that were made in between.

    Args:
        path: of the file, as the program named it or as it is.
        before: the text that the program has loaded.
        after: another one; or the first one's syntax, with additions that have its positions.

    Raises:
        SyntaxError: for a text that is no Python.
    """
    filename = _loaded_name(path)
    old, new = _compiled(before, filename), _compiled(after, filename)
    everything = list(pairs(old, new))
    paired = [pair for pair in everything if pair.new is None or pair.old != pair.new]
    with ExitStack() as stack:
        found = _LiveCode(path, paired, {pair.old for pair in everything})
        for name in {filename, *found.filenames} if isinstance(after, str) else ():
            stack.enter_context(_replace_linecache(name, str(after)))
        for names in found.namespaces:
            stack.enter_context(_bind_imports(names, _imports(before, after), filename))
        stack.callback(_restore_new_functions, {filename, *found.filenames}, paired)
        swap = _swap(found, paired, stack, _keyword_defaults(after))
        for cached in found.cached:
            _uncache(cached, stack)
        yield swap


@dataclass(frozen=True, slots=True)
class SwappedTexts:
    """Other texts of several files: the path of each, the text that the program has loaded, and the other one."""

    edits: tuple[tuple[str, str, str], ...]

    @contextmanager
    def apply(self) -> Generator[None]:
        """Have them run while the block runs."""
        with ExitStack() as stack:
            for path, before, after in self.edits:
                stack.enter_context(swap_code(path, before, after))
            yield


def edits_of(live: object) -> tuple[tuple[str, str, str], ...]:
    """The path, the text and the other text of each file that is another one while a run goes."""
    return live.edits if isinstance(live, SwappedTexts) else ()


def _keyword_defaults(after: str | ast.Module) -> dict[tuple[str, int], dict[str, Any]]:
    """The defaults of parameters that are given by name alone and are literals, by a function's name and line."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for node in ast.walk(ast.parse(after) if isinstance(after, str) else after):
        if isinstance(node, ast.FunctionDef) and node.args.kwonlyargs:
            line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            given = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            found[node.name, line] = {a.arg: v.value for a, v in given if isinstance(v, ast.Constant)}
    return found


def _swap(
    found: _LiveCode, paired: list[Pair], stack: ExitStack, defaults: dict[tuple[str, int], dict[str, Any]]
) -> Swap:
    left: list[str] = []
    number = 0
    for pair, functions in zip(paired, found.functions, strict=True):
        reasons: list[str] = []
        for function in functions:
            why = _refusal(function, pair.new)
            if why is None and pair.new is not None:
                stack.callback(setattr, function, "__code__", function.__code__)
                stack.callback(setattr, function, "__kwdefaults__", function.__kwdefaults__)
                added = defaults.get((pair.new.co_name, pair.new.co_firstlineno), {})
                function.__kwdefaults__ = {**added, **(function.__kwdefaults__ or {})} or None
                function.__code__ = _with_filename(pair.new, function.__code__.co_filename)
                number += 1
            elif why is not None:
                reasons.append(why)
        if pair.old in found.running:
            reasons.append(_RUNNING)
        if found.is_other(pair.old):
            reasons.append(_NOT_ITS_TEXT)
        if not functions and not reasons and _is_function(pair.old):
            reasons.append(_NOBODY)
        if pair.is_changed:
            left += [f"{_code_label(pair.old)}: {reason}" for reason in dict.fromkeys(reasons)]
    return Swap(number, tuple(left))


def _refusal(function: FunctionType, new: CodeType | None) -> str | None:
    if new is None:
        return _NO_PARTNER
    held = function.__code__.co_freevars
    if held == new.co_freevars:
        return None
    needed = sorted({*new.co_freevars} - {*held}) or sorted({*held} ^ {*new.co_freevars})
    return _CAPTURED.format(", ".join(needed))


class _LiveCode:
    """What the process holds of a file's code."""

    def __init__(self, path: str, paired: list[Pair], known: set[CodeType]) -> None:
        numbers = {pair.old: number for number, pair in enumerate(paired)}
        names = {pair.old.co_qualname for pair in paired}
        self.functions: list[list[FunctionType]] = [[] for _ in paired]
        self.running: set[CodeType] = set()
        self.namespaces: list[dict[str, Any]] = []
        self.filenames: list[str] = []
        self._others: set[tuple[str, int]] = set()
        cached: list[Any] = []
        same: dict[str, bool] = {}

        def is_ours(file: str) -> bool:
            if file not in same:
                same[file] = is_same_file(file, path)
                self.filenames += [file] if same[file] else []
            return same[file]

        for frame in _frames():
            if is_ours(frame.f_code.co_filename):
                self._add_namespace(frame.f_globals)
                if frame.f_code in numbers:
                    self.running.add(frame.f_code)
        for function in live_functions(is_ours):
            code = function.__code__
            self._add_namespace(function.__globals__)
            if code in numbers:
                self.functions[numbers[code]].append(function)
            elif code.co_qualname in names and code not in known:
                self._others.add((code.co_qualname, code.co_firstlineno))
        for thing in live_objects(CACHES, *SUSPENDED):
            if type(thing) not in SUSPENDED:
                cached.append(thing)
                continue
            code = getattr(thing, SUSPENDED[type(thing)])
            if is_ours(code.co_filename) and code in numbers:
                self.running.add(code)
        self.cached = [c for c in cached if (code := _code_of(c)) is not None and is_ours(code.co_filename)]

    def _add_namespace(self, namespace: dict[str, Any]) -> None:
        if not any(namespace is known for known in self.namespaces):
            self.namespaces.append(namespace)

    def is_other(self, code: CodeType) -> bool:
        """Whether there is a function in the place of a code that does something else."""
        return (code.co_qualname, code.co_firstlineno) in self._others


def _frames() -> Iterator[Any]:
    for frame in sys._current_frames().values():  # pyright: ignore[reportPrivateUsage] (the only way to all threads)
        innermost = frame
        while innermost is not None:
            yield innermost
            innermost = innermost.f_back


def _restore_new_functions(filenames: Container[str], paired: list[Pair]) -> None:
    """Give functions of a file that were made meanwhile the code that they would have been made with.

    The program may be in another folder by then: the names of the file are those that were its own at first.
    """
    olds = {pair.new: pair.old for pair in paired if pair.new is not None}
    for function in live_functions(filenames.__contains__):
        code = function.__code__
        old = olds.get(code)
        if old is not None and code.co_qualname == old.co_qualname and code.co_freevars == old.co_freevars:
            function.__code__ = _with_filename(old, code.co_filename)


def _code_of(cached: Any) -> CodeType | None:
    function = getattr(cached, "__wrapped__", None)
    return function.__code__ if isinstance(function, FunctionType) else None


def _uncache(cached: Any, stack: ExitStack) -> None:
    """Have the names by which modules and classes hold a cached function mean the function itself."""
    function: Any = cached.__wrapped__
    for holder in gc.get_referrers(cached):
        if type(holder) is not dict:
            continue
        names = cast("dict[Any, Any]", holder)
        owner = _owner(names)
        for name in [n for n, value in names.items() if value is cached and isinstance(n, str)]:
            if owner is not None:
                setattr(owner, name, function)
                stack.callback(setattr, owner, name, cached)
            elif "__name__" in names:
                names[name] = function
                stack.callback(names.__setitem__, name, cached)


def _owner(names: dict[Any, Any]) -> type | None:
    """The class whose attributes a dictionary holds."""
    if "__module__" not in names:
        return None
    return next((h for h in gc.get_referrers(names) if isinstance(h, type) and _is_class_namespace(names, h)), None)


def _is_class_namespace(names: dict[Any, Any], owner: type) -> bool:
    held = vars(owner)
    return len(held) == len(names) and all(held.get(name) is value for name, value in names.items())


def _imports(before: str, after: str | ast.Module) -> list[ast.stmt]:
    """What a text imports at its top and another one does not."""
    known = {ast.dump(node) for node in ast.parse(before).body}
    tree = ast.parse(after) if isinstance(after, str) else after
    imports = (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    return [n for n in imports if ast.dump(n) not in known and getattr(n, "module", None) != "__future__"]


@contextmanager
def _bind_imports(namespace: dict[str, Any], imports: list[ast.stmt], filename: str) -> Generator[None]:
    if not imports:
        yield
        return
    made: dict[str, Any] = {name: namespace.get(name) for name in ("__name__", "__package__", "__spec__", "__path__")}
    known = set(made)
    exec(compile(ast.Module(imports, []), filename, "exec", dont_inherit=True), made)
    new = {name: value for name, value in made.items() if name not in known and name != "__builtins__"}
    held = {name: namespace[name] for name in new if name in namespace}
    namespace.update(new)
    try:
        yield
    finally:
        for name, value in new.items():
            if name in held:
                namespace[name] = held[name]
            elif namespace.get(name) is value:
                del namespace[name]


@contextmanager
def _replace_linecache(filename: str, text: str) -> Generator[None]:
    """Have the lines of a file be those of a text, for tracebacks and for sites."""
    cache = cast("dict[str, Any]", linecache.cache)
    held = cache.get(filename)
    cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    try:
        yield
    finally:
        if held is None:
            cache.pop(filename, None)
        else:
            cache[filename] = held


def _compiled(text: str | ast.Module, filename: str) -> CodeType:
    with warnings.catch_warnings():  # the program's own were shown when it was compiled
        warnings.simplefilter("ignore")
        return compile(text, filename, "exec", dont_inherit=True)


def _with_filename(code: CodeType, filename: str) -> CodeType:
    """Code as it is in a file of another name."""
    if code.co_filename == filename:
        return code
    constants = tuple(_with_filename(c, filename) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=filename, co_consts=constants)


def _loaded_name(path: str) -> str:
    """A file's name as the code that was loaded from it has it."""
    modules: Iterable[Any] = list(sys.modules.values())
    named = (getattr(module, "__file__", None) for module in modules)
    return next((file for file in named if isinstance(file, str) and is_same_file(file, path)), os.path.abspath(path))


def is_same_file(one: str, other: str) -> bool:
    """Whether two names are of one file."""
    if one == other:
        return True
    if os.path.basename(one) != os.path.basename(other) or one.startswith("<"):
        return False
    return os.path.realpath(one) == os.path.realpath(other)


def _is_function(code: CodeType) -> bool:
    """Whether a code object belongs to a function that a program can hold before it runs what is around it."""
    return bool(code.co_flags & 2) and "<" not in code.co_qualname


def _code_label(code: CodeType) -> str:
    return "the top of the module" if code.co_name == "<module>" else code.co_qualname.replace("<locals>.", "")
