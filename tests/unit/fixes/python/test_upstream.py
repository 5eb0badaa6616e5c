"""A guard is compared, and judged, in terms of what its operands were made of."""

from __future__ import annotations

import importlib

import pytest
import torch

from tests.unit.fixes.python.mended import DIVISION, HEAD, LOG, LOG_SOFTMAX, ROOT_EPSILON, called, function, mended
from whynan.records import FixVerdict
from whynan.records.intents import FixIntent
from whynan.verify.formula import compile_formula
from whynan.verify.verdict import judge

X = torch.tensor([[0.5, 1.25, -2.0]])

FOLLOWED = [
    (LOG, "p = x.softmax(-1)\nreturn p.log()", "p.log()", ("x",)),
    (LOG, "h = x * 2\ne = torch.exp(h)\np = e / e.sum(-1, keepdim=True)\nreturn p.log()", "p.log()", ("x",)),
    (LOG, "x = x.sigmoid()\nreturn x.log()", "x.log()", ("x",)),
    (ROOT_EPSILON, "d = (x ** 2).sum(-1)\nreturn d.sqrt()", "d.sqrt()", ("x",)),
    (DIVISION, "n = torch.norm(x, dim=-1, keepdim=True)\ny = x / n\nreturn y", "x / n", ("x",)),
    (LOG, "with torch.no_grad():\n    p = x.softmax(-1)\n    q = p.log()\nreturn q", "p.log()", ("x",)),
]
STOPPED = {
    "a call that is not torch's": "p = model(x)\nreturn p.log()",
    "randomness": "p = torch.rand_like(x)\nreturn p.log()",
    "a product of matrices": "p = x @ x\nreturn p.log()",
    "two definitions": "p = x.exp()\nif p.sum() > 1:\n    p = x.sigmoid()\nreturn p.log()",
    "a write into it": "p = x.exp()\np[0] = 1\nreturn p.log()",
    "another context": "with torch.no_grad():\n    p = x.softmax(-1)\nreturn p.log()",
    "a function that runs later": "p = x.softmax(-1)\nreturn (lambda: p.log())()",
    "two at once": "q, p = x.exp(), x.sigmoid()\nreturn p.log()",
}


@pytest.mark.parametrize(("intent", "body", "site", "inputs"), FOLLOWED, ids=[row[1] for row in FOLLOWED])
def test_what_an_operand_was_made_of_is_in_both_formulas(
    intent: FixIntent, body: str, site: str, inputs: tuple[str, ...]
) -> None:
    found = mended(function(body), site, intent)
    assert found.original.inputs == found.repaired.inputs == inputs
    assert torch.allclose(called(found.original, {"x": X}), called(found.repaired, {"x": X}), equal_nan=True)


@pytest.mark.parametrize("why", STOPPED)
def test_what_is_not_safe_to_compute_again_is_an_input(why: str) -> None:
    found = mended(function(STOPPED[why], "x, model"), "p.log()", LOG)
    assert found.original.inputs == ("p",)
    assert found.original.body == "return p.log()"


def test_what_changes_on_the_way_is_not_followed_past_it() -> None:
    body = "s = x * 2\nfor _ in range(3):\n    y = (s + x).log()\n    x = x + y\nreturn x"
    found = mended(function(body), "(s + x).log()", LOG)
    assert found.original.inputs == ("s", "x")
    assert found.original.line == 8


def test_a_name_that_has_had_two_values_is_not_mistaken() -> None:
    body = "p = x.exp()\nq = p.sum()\np = model(x)\nreturn (q + p).log()"
    found = mended(function(body, "x, model"), "(q + p).log()", LOG)
    assert found.original.inputs == ("q", "p")


def test_what_changes_no_value_is_compared_as_before() -> None:
    body = "h = x * 2\np = h.softmax(-1)\nreturn p.log()"
    found = mended(function(body), "p.log()", LOG_SOFTMAX)
    assert found.original.inputs == ("h",)


ZERO = FixIntent("0 where the denominator is 0", "guard", "a / b", "where(b == 0, 0, a / where(b == 0, 1, b))")
UNDERFLOWED = {
    "a softmax": (LOG, "p = x.softmax(-1)\nreturn p.log()", "p.log()", [[200.0, 0.5, 1.0]], "-199.5"),
    "a sigmoid": (LOG, "p = torch.sigmoid(x)\nreturn torch.log(p)", "torch.log(p)", [[-200.0, 0.5]], "-200"),
    "a softmax by hand": (
        LOG,
        "e = torch.exp(x - x.max())\np = e / e.sum()\nreturn p.log()",
        "p.log()",
        [[200.0, 0.5, 1.0]],
        "-199.5",
    ),
    "a sum": (
        ZERO,
        "e = torch.exp(x)\ns = e.sum(-1, keepdim=True)\nreturn e / s",
        "e / s",
        [[-200.0, -201.0], [1.0, 2.0]],
        "0.731",
    ),
}
TRUE_ZEROS = {
    "a relu": (LOG, "p = torch.relu(x)\nreturn p.log()", "p.log()", [[-1.0, 0.5, 1.0]]),
    "data": (LOG, "return x.log()", "x.log()", [[0.0, 0.5, 1.0]]),
    "a sum of zeros": (ZERO, "w = x.relu()\ns = w.sum(-1, keepdim=True)\nreturn w / s", "w / s", [[-1.0, -2.0]]),
    "a difference": (LOG, "d = (x - 1).abs()\nreturn torch.log(d)", "torch.log(d)", [[1.0, 0.5, 3.0]]),
}


def verdict(intent: FixIntent, body: str, site: str, values: list[list[float]]) -> FixVerdict:
    found = mended(function(body), site, intent)
    original, repaired = compile_formula(found.original), compile_formula(found.repaired)
    given = [{"x": torch.tensor(values, requires_grad=True)}, {"x": X.abs().clone().requires_grad_()}]
    return judge(original, repaired, given, kind=found.kind)


@pytest.mark.parametrize("name", UNDERFLOWED)
def test_a_guard_behind_an_underflow_is_rejected(name: str) -> None:
    *row, exact = UNDERFLOWED[name]
    told = verdict(*row)  # type: ignore[arg-type]
    assert told.status == "rejected", told
    assert f"where the exact one is {exact}" in told.why


@pytest.mark.parametrize("name", TRUE_ZEROS)
def test_a_guard_of_a_true_zero_holds(name: str) -> None:
    """What is given in place of an infinity, or of a quotient of zeros, is stated."""
    told = verdict(*TRUE_ZEROS[name])
    assert told.status == "guarded", told


def test_without_what_is_upstream_the_same_guard_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    # the package has a function of this name
    candidates = importlib.import_module("whynan.fixes.python.candidates")
    monkeypatch.setattr(candidates, "levels", lambda *_: iter(()))
    found = mended(f"{HEAD}def f(x):\n    p = x.softmax(-1)\n    return p.log()\n", "p.log()", LOG)
    assert found.original.inputs == ("p",)
    given = [{"p": torch.tensor([0.0, 0.5, 0.5], requires_grad=True)}]
    told = judge(compile_formula(found.original), compile_formula(found.repaired), given, kind="guard")
    assert told.status == "guarded"
