"""What a replacement has more than once is computed on a line above the statement, where that changes nothing else."""

from __future__ import annotations

import ast

import pytest
import torch

from tests.unit.fixes.python.mended import (
    DIVISION,
    HEAD,
    all_of,
    changed,
    computed,
    declined,
    executed,
    function,
    is_cured,
    mended,
)
from whynan.fixes.candidates import Candidate
from whynan.fixes.python.repeated_parts import extract_repeated_parts
from whynan.records.intents import FixIntent
from whynan.rules.catalogue import rules

GREATEST = "detach(clamp(amax(abs(x), dim=d, keepdim=True), min=finfo(x).tiny))"
SCALED = FixIntent(
    "scaled",
    "reformulation",
    "sqrt(sum(x**2, d, k))",
    f"vector_norm(x / {GREATEST}, dim=d, keepdim=k) * amax({GREATEST}, dim=d, keepdim=k)",
    (("scale", GREATEST),),
)
LOG = FixIntent("safe", "guard", "log(x)", "log(where(x == 0, finfo(x).tiny, x))", (("given", "x"),))
ZERO = torch.zeros(1, 2)
GOOD = torch.tensor([[0.5, 1.25]])
TINY = "torch.finfo(x.dtype).tiny"
SCALE = f"scale = x.abs().amax(dim=-1, keepdim=True).clamp(min={TINY}).detach()"
SITE = "x.pow(2).sum(-1).sqrt()"
KEPT = "x.pow(2).sum(-1, keepdim=True).sqrt()"


def test_what_occurs_twice_stands_above() -> None:
    text = function(f"y = {SITE}\nreturn y")
    found = mended(text, SITE, SCALED)
    assert changed(text, found.edited) == [
        SCALE,
        "y = torch.linalg.vector_norm(x / scale, dim=-1) * scale.amax(dim=-1)",
    ]
    assert is_cured(text, found.edited, [ZERO], [GOOD])
    assert found.repaired.inputs == ("x",)
    assert found.repaired.body.splitlines()[0] == SCALE


def test_a_dimension_that_is_kept_is_not_reduced_again() -> None:
    text = function(f"return {KEPT}")
    found = mended(text, KEPT, SCALED)
    assert changed(text, found.edited)[-1] == "return torch.linalg.vector_norm(x / scale, dim=-1, keepdim=True) * scale"
    assert is_cured(text, found.edited, [ZERO], [GOOD])


def test_an_operand_that_is_no_name_gets_one() -> None:
    text = function("return (x * 2).sum(-1).log()")
    found = mended(text, "(x * 2).sum(-1).log()", LOG)
    assert changed(text, found.edited) == [
        "given = (x * 2).sum(-1)",
        "return torch.where(given == 0, torch.finfo(given.dtype).tiny, given).log()",
    ]


@pytest.mark.parametrize("taken", ["scale = 3", "def scale():\n    pass", "for scale in ():\n    pass"])
def test_a_name_that_is_taken_is_left_alone(taken: str) -> None:
    text = function(f"{taken}\nreturn {SITE}")
    edited = mended(text, SITE, SCALED).edited
    assert f"    {SCALE.replace('scale =', 'scale_2 =', 1)}\n" in edited
    assert is_cured(text, edited, [ZERO], [GOOD])


def test_an_attribute_is_no_name_that_is_taken() -> None:
    text = function(f"y = x.scale if hasattr(x, 'other') else x\nreturn {SITE}")
    assert f"    {SCALE}\n" in mended(text, SITE, SCALED).edited


ABOVE = {
    "an assignment": "y = {}\nreturn y",
    "the first of several on a line": "y = {}; z = y\nreturn z",
    "a test": "if ({}.sum() < 3):\n    return {}\nreturn x * 2",
    "what a loop runs over": "total = 0\nfor row in {}:\n    total = total + row\nreturn total",
    "a manager": "with torch.autograd.graph.save_on_cpu(bool({}.numel())):\n    return {}",
    "an argument of an unknown function": "def g(t):\n    return t\nreturn g({})",
    "before something is done": "def g(t):\n    return t\nreturn {} + g(x)",
    "in a block": "if x.ndim:\n    y = (\n        {}\n    )\n    return y\nreturn x",
    "an augmented assignment": "y = 0\ny += {}\nreturn y",
    "the first operand of an and": "return {}.sum() + (bool({}.numel()) and 1)",
    "the test of a choice": "return x * 2 if {}.sum() < 9 else x",
}


@pytest.mark.parametrize("name", ABOVE)
def test_it_stands_above(name: str) -> None:
    text = function(ABOVE[name].replace("{}", SITE))
    edited = mended(text, SITE, SCALED).edited
    assert ":=" not in edited
    assert any(line.strip().startswith("scale = ") for line in edited.splitlines())
    assert_same(text, edited)


WITHIN = {
    "a later one of several on a line": "y = 1; z = {}\nreturn y * z",
    "the body of a test on its line": "if x.ndim: return {}\nreturn x",
    "another test": "if x.ndim > 5:\n    return x\nelif {}.sum() < 9:\n    return x * 2\nreturn x",
    "a test of a loop": "n = x\nwhile {}.sum() * n.sum() > 9:\n    n = n - 1\nreturn n",
    "a function of its own": "return (lambda x: {})(x)",
    "a default": "def g(t={}):\n    return t\nreturn g()",
    "a branch of a choice": "return {} if x.ndim else x",
    "a later operand of an and": "return (x.ndim and {})",
    "a chain of comparisons": "return x * (0 < x.ndim < {}.sum() + 9)",
    "what a comprehension makes": "return torch.stack([{} * i for i in range(2)])",
    "a message": "assert x.ndim, {}\nreturn x",
    "after something is done": "def g(t):\n    t.mul_(2)\n    return 1\nz = x * 1\nreturn g(z) * {}",
    "another manager": "import contextlib\nwith contextlib.nullcontext(), contextlib.nullcontext({}):\n    return x",
    "a line that goes on": "if True: \\\n    return {}\nreturn x",
}


@pytest.mark.parametrize("name", WITHIN)
def test_it_does_not_stand_above_what_may_not_need_it(name: str) -> None:
    text = function(WITHIN[name].replace("{}", SITE))
    edited = mended(text, SITE, SCALED).edited
    assert not any(line.strip().startswith("scale = ") for line in edited.splitlines())
    assert_same(text, edited)


def test_in_a_decorator_it_is_declined() -> None:
    text = function(f"def wrap(t):\n    return lambda f: t\n@wrap({SITE})\ndef g():\n    pass\nreturn g")
    assert declined(text, SITE, SCALED) == ["it cannot be written there"]


def test_a_body_of_a_class_gets_no_attribute() -> None:
    text = f"{HEAD}def f(x):\n    class Held:\n        value = [{SITE} for _ in [0]][0]\n    return Held.value\n"
    edited = mended(text, SITE, SCALED).edited
    assert "scale" not in edited
    assert_same(text, edited)


def assert_same(text: str, edited: str) -> None:
    """An edited program gives what it gave, in value and gradient."""
    (before, slopes), (after, others) = computed(text, GOOD), computed(edited, GOOD)
    assert torch.allclose(before, after)
    assert all(torch.allclose(a, b) for a, b in zip(slopes, others, strict=True))


CALLS = {
    "x / g(x)": ["denominator = g(x)", "y = x / torch.where(denominator == 0, 1, denominator)"],
    "h(x) / g(x)": None,
    "(x * 2) / g(x)": None,
    "g(x) / h(x)": None,
    "g(x) / x.sum()": None,
    "h(x) / x.sum()": None,
    "x.sum() / g(x)": None,
}
NAMED = FixIntent("1", "guard", "a / b", "a / where(b == 0, 1, b)", (("denominator", "b"),))


HELPERS = """\
    calls = []
    def g(t):
        calls.append("g")
        t.mul_(3)
        return t * 2
    def h(t):
        calls.append("h")
        return t
"""


@pytest.mark.parametrize("quotient", CALLS)
def test_what_does_something_is_called_once_and_in_its_turn(quotient: str) -> None:
    text = f"{HEAD}def f(x):\n    x = x * 1\n{HELPERS}    y = {quotient}\n    return y.sum(), calls\n"
    edited = mended(text, quotient, NAMED).edited
    before, after = (executed(t)["f"](GOOD.clone()) for t in (text, edited))
    assert before[1] == after[1]
    assert torch.equal(before[0], after[0])
    assert CALLS[quotient] in (None, changed(text, edited))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["    ", "\t"])
def test_lines_and_indentation_are_the_files_own(end: str, indent: str) -> None:
    text = f"import torch\n\n\ndef f(x):\n{indent}return {SITE}\n".replace("\n", end)
    edited = mended(text, SITE, SCALED).edited
    assert f"{end}{indent}{SCALE}{end}{indent}return " in edited
    assert edited.count(end) == text.count(end) + 1
    assert edited.replace(end, "").count("\n") == 0


def test_an_operand_of_several_lines_stays_one() -> None:
    text = function("y = x / (\n    x.sum()  # all\n    + 0\n)\nreturn y")
    edited = mended(text, "x / (\n        x.sum()  # all\n        + 0\n    )", DIVISION).edited
    assert is_cured(text, edited, [ZERO], [GOOD])


@pytest.mark.parametrize("site", [SITE, KEPT])
def test_what_was_written_is_not_mended_again(site: str) -> None:
    text = function(f"y = {site}\nreturn y")
    edited = mended(text, site, SCALED).edited
    (line,) = (line.strip().removeprefix("y = ") for line in edited.splitlines() if line.strip().startswith("y = "))
    assert not any(isinstance(c, Candidate) for c in all_of(edited, line, SCALED))


def test_a_guard_above_is_known_again() -> None:
    text = function("return x / x.sum()")
    once = mended(text, "x / x.sum()", NAMED).edited
    again = all_of(once, "x / torch.where(denominator == 0, 1, denominator)", NAMED)
    assert [getattr(c, "why", None) for c in again] == ["it is written so already"]


def test_every_part_that_a_rule_repeats_has_a_name() -> None:
    for rule in rules():
        for fix in rule.fixes:
            if fix.replacement:
                named = [(name, ast.parse(text, mode="eval").body) for name, text in fix.names]
                tree, lets = extract_repeated_parts(ast.parse(fix.replacement, mode="eval").body, named)
                read = {n.id for t in (tree, *lets.values()) for n in ast.walk(t) if isinstance(n, ast.Name)}
                assert {name for name, part in named if not isinstance(part, ast.Name)} == set(lets), fix
                assert {part.id for _, part in named if isinstance(part, ast.Name)} <= read, fix
