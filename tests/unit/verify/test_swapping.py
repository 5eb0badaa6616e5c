"""Another text of a file runs in place of the loaded one, in every kind of function, and all is put back."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from whynan.verify.in_place.swap import swap_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

KINDS = """
import functools
import torch


def plain(x):
    return x + 1


def _passing(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


@_passing
def wrapped(x):
    return x + 1


@torch.no_grad()
def ungraded(x):
    return x + 1


def _adder(y):
    def add(x):
        return x + 1 + y

    return add


closure, other_closure = _adder(0), _adder(10)


class Thing:
    def method(self, x):
        return x + 1

    @staticmethod
    def static(x):
        return x + 1

    @classmethod
    def of_class(cls, x):
        return x + 1

    @property
    def one(self):
        return 1 + 1

    @functools.lru_cache
    def cached_method(self, x):
        return x + 1


class Heir(Thing):
    def method(self, x):
        return super().method(x)


thing = Thing()
bound = thing.method


class Module(torch.nn.Module):
    def forward(self, x):
        return x + 1


module = Module()
one_lambda = lambda x: x + 1
lambdas = {"a": lambda x: x + 1, "b": lambda x: x + 100}
partial = functools.partial(lambda y, x: x + 1 + y, 0)


@functools.lru_cache
def cached(x):
    return x + 1


def generator(x):
    yield x + 1


def comprehension(x):
    return [y + 1 for y in [x]]


def maker(x):
    def made(y):
        return y + 1

    return made(x)


def with_default(x, y=0, *, z=0):
    return x + 1 + y + z


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def backward(ctx, g):
        return g


async def coroutine(x):
    return x + 1


def _eagerly(x):
    return x + 1


compiled = torch.compile(_eagerly, backend="eager")
"""
OLD, NEW = 2.0, 3.0

CALLS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda m: m.plain(1),
    "wraps": lambda m: m.wrapped(1),
    "no_grad": lambda m: m.ungraded(1),
    "closure": lambda m: m.closure(1),
    "other closure": lambda m: m.other_closure(1) - 10,
    "method": lambda m: m.thing.method(1),
    "bound method": lambda m: m.bound(1),
    "static method": lambda m: m.Thing.static(1),
    "class method": lambda m: m.Thing.of_class(1),
    "property": lambda m: m.thing.one,
    "super": lambda m: m.Heir().method(1),
    "module": lambda m: m.module(1),
    "lambda": lambda m: m.one_lambda(1),
    "one of two lambdas": lambda m: m.lambdas["a"](1),
    "partial": lambda m: m.partial(1),
    "lru_cache": lambda m: m.cached(1),
    "cached method": lambda m: m.thing.cached_method(1),
    "generator": lambda m: next(m.generator(1)),
    "comprehension": lambda m: m.comprehension(1)[0],
    "nested function": lambda m: m.maker(1),
    "default": lambda m: m.with_default(1),
    "keyword default": lambda m: m.with_default(1, z=0),
    "autograd function": lambda m: m.Function.apply(m.torch.tensor(1.0)).item(),
    "coroutine": lambda m: asyncio.run(m.coroutine(1)),
    "compiled": lambda m: m.compiled(m.torch.tensor(1.0)).item(),
}


@pytest.mark.parametrize("edit", ["in its line", pytest.param("lines moved", marks=pytest.mark.breadth)])
def test_every_kind_of_function_runs_the_other_text_and_then_its_own_again(
    loaded: Callable[[str], ModuleType], edit: str
) -> None:
    module = loaded(KINDS)
    after = re.sub(r"\+ 1\b", "+ 2", KINDS)
    after = after if edit == "in its line" else f"import math\nimport os\n\n{after}"
    before = {kind: call(module) for kind, call in CALLS.items()}
    assert before == dict.fromkeys(CALLS, OLD)
    with swap_code(str(module.__file__), KINDS, after) as swap:
        meanwhile = {kind: call(module) for kind, call in CALLS.items()}
        assert module.lambdas["b"](1) == 101
    assert meanwhile == dict.fromkeys(CALLS, NEW)
    assert swap.left == ()
    assert {kind: call(module) for kind, call in CALLS.items()} == before
    assert not hasattr(module, "math")


def test_a_parameter_that_only_the_other_text_has_is_what_it_says_unless_it_is_given(
    loaded: Callable[[str], ModuleType],
) -> None:
    before = "def f(x, *, y=1):\n    return x + y\n"
    module = loaded(before)
    after = "def f(x, *, y=2, z=10):\n    return x + y + z\n"
    with swap_code(module.__file__ or "", before, after):
        # one that both have is what the program's own function was made with
        assert (module.f(0), module.f(0, z=20)) == (11, 21)
    assert module.f(0) == 1
    assert module.f.__kwdefaults__ == {"y": 1}


def test_an_exception_puts_everything_back(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(KINDS)
    codes = {name: v.__code__ for name, v in vars(module).items() if hasattr(v, "__code__")}
    with contextlib.suppress(ZeroDivisionError), swap_code(str(module.__file__), KINDS, KINDS.replace("+ 1", "/ 0")):
        module.plain(1)
    assert {name: v.__code__ for name, v in vars(module).items() if hasattr(v, "__code__")} == codes
    assert module.plain(1) == OLD


def test_what_is_imported_by_the_other_text_is_there_meanwhile(loaded: Callable[[str], ModuleType]) -> None:
    text = "def plain(x):\n    return x + 1\n"
    module = loaded(text)
    with swap_code(str(module.__file__), text, "import math as m\n\n\ndef plain(x):\n    return m.exp(x)\n"):
        assert module.plain(0) == 1.0
    assert not hasattr(module, "m")


def test_a_function_made_meanwhile_is_what_it_would_have_been(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded("def maker():\n    def made(x):\n        return x + 1\n\n    return made\n")
    text = "def maker():\n    def made(x):\n        return x + 1\n\n    return made\n"
    with swap_code(str(module.__file__), text, text.replace("+ 1", "+ 2")):
        made = module.maker()
        assert made(1) == 3
    assert made(1) == 2


CLOSURE = "def maker(y):\n    def made(x):\n        return x + 1\n\n    return made\n\n\nheld = maker(5)\n"


def test_a_function_that_would_need_another_variable_is_left_and_said(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(CLOSURE)
    with swap_code(str(module.__file__), CLOSURE, CLOSURE.replace("+ 1", "+ y")) as swap:
        assert module.held(1) == 2
        assert module.maker(5)(1) == 6
    assert swap.left == (
        "maker.made: it was made before, and would need other variables of the function around it (y)",
    )


def test_what_is_running_is_left_and_said(loaded: Callable[[str], ModuleType]) -> None:
    text = "def outer(inside):\n    inside()\n    return 1\n\n\ndef steps():\n    yield 1\n    yield 1\n"
    module = loaded(text)
    steps = module.steps()
    next(steps)
    left: list[str] = []

    def inside() -> None:
        with swap_code(str(module.__file__), text, text.replace("1", "2")) as swap:
            left.extend(swap.left)
            assert next(steps) == 1

    assert module.outer(inside) == 1
    assert left == [
        "outer: it is running, and goes on as it was",
        "steps: it is running, and goes on as it was",
    ]


def test_code_that_was_not_made_from_the_text_is_left_and_said(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded("def plain(x):\n    return x + 5\n")
    text = "def plain(x):\n    return x + 1\n"
    with swap_code(str(module.__file__), text, text.replace("+ 1", "+ 2")) as swap:
        assert module.plain(1) == 6
    assert swap.left == ("plain: what is loaded was not made from the file as it is",)
    assert swap.swapped == 0


def test_code_of_no_file_is_left_and_said(tmp_path: Path) -> None:
    text = "def plain(x):\n    return x + 1\n"
    names: dict[str, Any] = {}
    exec(text, names)
    with swap_code(str(tmp_path / "text.py"), text, text.replace("+ 1", "+ 2")) as swap:
        assert names["plain"](1) == 2
    assert swap.left == (
        "plain: no function of its code is there to be called: made by exec, scripted, or not made yet",
    )


def test_added_functions_do_not_shift_the_partners_of_the_others(loaded: Callable[[str], ModuleType]) -> None:
    text = 'table = {"a": lambda x: x + 1, "b": lambda x: x + 2}\n'
    module = loaded(text)
    after = 'table = {"z": lambda x: x + 9, "a": lambda x: x + 1, "b": lambda x: x + 3}\n'
    with swap_code(str(module.__file__), text, after):
        assert [module.table[name](0) for name in "ab"] == [1, 3]


def test_a_thread_that_runs_the_code_is_seen(loaded: Callable[[str], ModuleType]) -> None:
    text = "def waits(begun, done):\n    begun.set()\n    done.wait()\n    return 1\n"
    module = loaded(text)
    begun, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=module.waits, args=(begun, done))
    thread.start()
    begun.wait()
    try:
        with swap_code(str(module.__file__), text, text.replace("return 1", "return 2")) as swap:
            assert swap.left == ("waits: it is running, and goes on as it was",)
    finally:
        done.set()
        thread.join()
