"""The formulas of a candidate compute what the program computes there, before and after the edit."""

from __future__ import annotations

import pytest
import torch

from tests.unit.fixes.python.mended import (
    DIVISION,
    HEAD,
    LOG,
    LOG_SOFTMAX,
    LOGSUMEXP,
    RATIO,
    SOFTMAX,
    called,
    finding,
    function,
    mended,
)
from whynan.fixes.candidates import Candidate
from whynan.fixes.python import candidates
from whynan.rules.intents import ROOT

X = torch.tensor([[0.5, 1.25, -2.0]])
BAD = torch.tensor([[-300.0, 300.0, 0.0]])

CASES = [
    (LOG_SOFTMAX, "p = x.softmax(-1)\nreturn p.log()", "p.log()", ("x",), 6),
    (LOG_SOFTMAX, "p = x.softmax(-1)\nx = x + 1\nreturn p.log()", "p.log()", ("x",), 6),
    (LOGSUMEXP, "t = x.clone()\nt.exp_()\nreturn t.sum(-1).log()", "t.exp_()", ("x",), 6),
    (SOFTMAX, "e = x.exp()\ne /= e.sum(-1, keepdim=True)\nreturn e", "x.exp()", ("x",), 6),
    (DIVISION, "d = x.sum()\nreturn x / d", "x / d", ("x",), 6),
    (DIVISION, "y = x * 1\ny /= x.sum()\nreturn y", "y /= x.sum()", ("x",), 6),
    (LOG, "def g(t):\n    return t.abs()\nreturn g(x).log()", "g(x).log()", ("g", "x"), 8),
]


@pytest.mark.parametrize(("intent", "body", "site", "inputs", "line"), CASES, ids=[c[1] for c in CASES])
def test_a_formula_reads_names_at_a_line(intent, body, site, inputs, line) -> None:  # noqa: ANN001 - a table
    found = mended(function(body), site, intent)
    assert found.original.inputs == found.repaired.inputs == inputs
    assert found.original.line == found.repaired.line == line
    assert found.function == "f"
    assert found.path == "m.py"
    if "g" in inputs:
        return
    values = {"x": X, "y": X * 1, "d": X.abs().sum()}
    before = {name: value.clone() for name, value in values.items()}
    original, repaired = called(found.original, values), called(found.repaired, values)
    assert torch.allclose(original, repaired, atol=1e-6)
    assert all(torch.equal(values[name], value) for name, value in before.items()), "a formula writes into its inputs"
    bad = {name: BAD if name == "x" else BAD * 0 for name in values}
    assert not called(found.original, bad).isfinite().all()
    assert called(found.repaired, bad).isfinite().all()


def test_the_parentheses_of_an_expression_go_with_it() -> None:
    found = mended(function("return (\n    x * (x / y).log()\n).sum(-1)", "x, y"), "(x / y).log()", RATIO)
    values = {"x": torch.tensor([0.0, 0.5]), "y": torch.tensor([0.5, 0.25])}
    assert not called(found.original, values).isfinite().all()
    assert torch.equal(called(found.repaired, values), torch.xlogy(values["x"], torch.tensor([1.0, 2.0])))


def test_attributes_are_inputs_by_a_name_of_their_own() -> None:
    body = "x / self.scale.weight + x.shape[0] * self.eps.sum()"
    text = f"{HEAD}class Net:\n    def forward(self, x):\n        return {body}\n"
    found = mended(text, "x / self.scale.weight", DIVISION)
    assert found.original.inputs == ("x", "self.scale.weight")
    assert found.original.parameters == ("x", "self_scale_weight")
    assert found.function == "Net.forward"
    values = {"x": X, "self.scale.weight": X * 0}
    assert called(found.repaired, values).isfinite().all()


def test_a_helper_comes_with_the_formula() -> None:
    text = f"{HEAD}SCALE = 2.0\n\n\ndef g(t):\n    return t.abs() * SCALE\n\n\ndef f(x):\n    return torch.log(g(x))\n"
    found = mended(text, "torch.log(g(x))", LOG)
    assert found.original.inputs == ("SCALE", "x") or found.original.inputs == ("x", "SCALE")
    assert torch.equal(called(found.original, {"x": X, "SCALE": 2.0}), torch.log(X.abs() * 2))


def test_a_guard_is_judged_with_the_selection_around_it() -> None:
    text = function("return torch.where(x > 0, x.log(), torch.zeros_like(x))")
    made = [c for c in candidates(text, finding(text, "x.log()"), [LOG]) if isinstance(c, Candidate)]
    assert len(made) == 3
    for found in made:
        assert found.kind == "guard"
        assert "zeros_like" in found.original.body
        assert torch.equal(called(found.original, {"x": X}), called(found.repaired, {"x": X}))


@pytest.mark.parametrize(
    ("body", "guard"),
    [
        ("return torch.sqrt(x - y)", "<= 0"),
        ("d = x + 1.0\nreturn torch.sqrt(d)", "<= 0"),
        ("return torch.sqrt(x * y + y**2)", "<= 0"),
        ("return torch.sqrt((x - y) ** 2 + y**2 + 1e-9)", "== 0"),
        ("return torch.sqrt((x - y).square().sum(-1))", "== 0"),
        ("return torch.sqrt(x)", "== 0"),
    ],
)
def test_a_root_of_a_difference_is_guarded_below_zero_too(body: str, guard: str) -> None:
    site = body.rpartition("return ")[2]
    found = mended(function(body, "x, y"), site, *ROOT)
    assert f" {guard}" in found.edited
    assert len({"<= 0", "== 0"} & {found.edited[i : i + 4] for i in range(len(found.edited))}) == 1
