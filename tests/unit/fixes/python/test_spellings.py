"""However a hazard is spelled, the edit of its source is finite where the original is not, and else the same."""

from __future__ import annotations

import pytest
import torch

from tests.unit.fixes.python.mended import (
    DIVISION,
    HEAD,
    LOG,
    LOG_ONE_MINUS,
    LOG_SIGMOID,
    LOG_SOFTMAX,
    LOGSUMEXP,
    NORM,
    ROOT_EPSILON,
    SIGMOID,
    SOFTMAX,
    XLOGX,
    all_of,
    changed,
    computed,
    declined,
    function,
    is_cured,
    is_cured_forward,
    is_finite,
    mended,
)
from whynan.fixes.candidates import Candidate
from whynan.records.intents import FixIntent
from whynan.rules.intents import reformulation

GAP = torch.tensor([[0.0, 300.0]])
LARGE = torch.tensor([[100.0, 1.0]])
LOW = torch.tensor([[-200.0, 1.0]])
HIGH = torch.tensor([[200.0, 1.0]])
ZERO = torch.tensor([[0.0, 0.0]])
ONE_ZERO = torch.tensor([[0.0, 0.5]])
NOTHING = torch.tensor([[1.0, 0.5]])
COUNTED = reformulation(
    "the mean over what there is",
    "mean(x, d, k)",
    "sum(x / clamp(sum(ones_like(x), dim=d, keepdim=True), min=1), d, k)",
)
GOOD = torch.tensor([[0.5, 1.25]])

CASES = [
    (LOG_SOFTMAX, GAP, "torch.log(torch.softmax(x, -1))", "torch.log(torch.softmax(x, -1))"),
    (LOG_SOFTMAX, GAP, "x.softmax(-1).log()", "x.softmax(-1).log()"),
    (LOG_SOFTMAX, GAP, "F.softmax(input=x, dim=1).log()", "F.softmax(input=x, dim=1).log()"),
    (
        LOG_SOFTMAX,
        GAP,
        "torch.nn.functional.softmax(x, dim=-1).log2()",
        "torch.nn.functional.softmax(x, dim=-1).log2()",
    ),
    (LOG_SOFTMAX, GAP, "torch.nn.Softmax(dim=-1)(x).log()", "torch.nn.Softmax(dim=-1)(x).log()"),
    (LOG_SOFTMAX, GAP, "torch.special.softmax(x, 1).double().log()", "torch.special.softmax(x, 1).double().log()"),
    (
        LOG_SOFTMAX,
        10 * GAP,
        "F.softmax(x, -1, dtype=torch.float64).log()",
        "F.softmax(x, -1, dtype=torch.float64).log()",
    ),
    (LOG_SOFTMAX, GAP, "p = x.softmax(-1)\nq = p.unsqueeze(0)\nq.log()", "q.log()"),
    (LOG_SOFTMAX, GAP, "p = F.softmax(x, 1)\n-(p.detach() * torch.log(p)).sum()", "torch.log(p)"),
    (LOG_SIGMOID, LOW, "x.sigmoid().log()", "x.sigmoid().log()"),
    (LOG_SIGMOID, LOW, "p = torch.special.expit(2 * x)\n-p.log().mean()", "p.log()"),
    (LOG_ONE_MINUS, HIGH, "torch.log(1 - torch.sigmoid(x))", "torch.log(1 - torch.sigmoid(x))"),
    (LOG_ONE_MINUS, HIGH, "torch.log1p(-x.sigmoid())", "torch.log1p(-x.sigmoid())"),
    (LOG_ONE_MINUS, HIGH, "(-x.sigmoid() + 1).log()", "(-x.sigmoid() + 1).log()"),
    (LOG_ONE_MINUS, HIGH, "torch.rsub(x.sigmoid(), 1).log10()", "torch.rsub(x.sigmoid(), 1).log10()"),
    (LOGSUMEXP, LARGE, "torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))", "torch.exp(x)"),
    (LOGSUMEXP, LARGE, "x.exp().sum(1).log()", "x.exp()"),
    (LOGSUMEXP, LARGE, "x.exp().sum().log()", "x.exp()"),
    (LOGSUMEXP, LARGE, "e = x.exp()\ns = e.sum(axis=-1)\ns.log()", "x.exp()"),
    (LOGSUMEXP, LARGE, "t = x.clone()\nt.exp_()\nt.sum(-1).log()", "t.exp_()"),
    (SOFTMAX, LARGE, "x.exp() / x.exp().sum(-1, keepdim=True)", "x.exp() / x.exp().sum(-1, keepdim=True)"),
    (SOFTMAX, LARGE, "e = torch.exp(x)\nz = torch.sum(e, 1, True)\ntorch.div(e, z)", "torch.div(e, z)"),
    (SIGMOID, LOW, "1 / (1 + torch.exp(-x))", "torch.exp(-x)"),
    (SIGMOID, LOW, "(1.0 + (-x).exp()).reciprocal()", "(-x).exp()"),
    (SIGMOID, LOW, "2 / (torch.exp(-x) + 1)", "torch.exp(-x)"),
    (XLOGX, ONE_ZERO, "-(x * torch.log(x)).sum(-1)", "torch.log(x)"),
    (XLOGX, ONE_ZERO, "-(3 * x * x.log2()).sum(-1)", "x.log2()"),
    (XLOGX, ONE_ZERO, "s = x.log()\nx * s", "x.log()"),
    (DIVISION, ZERO, "x / x.sum(-1, keepdim=True)", "x / x.sum(-1, keepdim=True)"),
    (DIVISION, ZERO, "d = x.abs().sum()\ntorch.true_divide(x, d)", "torch.true_divide(x, d)"),
    (DIVISION, ZERO, "y = x * 1\ny /= x.sum()\ny", "y /= x.sum()"),
    (DIVISION, ZERO, "y = x * 1\ny.div_(x.sum())", "y.div_(x.sum())"),
    (LOG, ONE_ZERO, "(x * 2).log().clamp(min=-5)", "(x * 2).log()"),
    (NORM, ZERO, "torch.sqrt((x ** 2).sum(-1))", "torch.sqrt((x ** 2).sum(-1))"),
    (NORM, ZERO, "(x * x).sum(-1, keepdim=True) ** 0.5", "(x * x).sum(-1, keepdim=True) ** 0.5"),
    (NORM, ZERO, "s = torch.square(x)\nn = s.sum(dim=1)\nn.pow(.5)", "n.pow(.5)"),
    (ROOT_EPSILON, ZERO, "x.sqrt()", "x.sqrt()"),
    (COUNTED, NOTHING, "x[x > 1.2].mean()", "x[x > 1.2].mean()"),
]


@pytest.mark.parametrize(("intent", "bad", "body", "site"), CASES, ids=[f"{c[0].title}: {c[2]}" for c in CASES])
def test_an_edit_cures_and_keeps(intent, bad, body, site) -> None:  # noqa: ANN001 - a table
    *rest, last = body.split("\n")
    text = function("\n".join([*rest, f"return {last}"]))
    found = mended(text, site, intent)
    assert is_cured(text, found.edited, [bad], [GOOD]), changed(text, found.edited)


IN_PLACE = [
    (LOG_SOFTMAX, GAP, "p = x.softmax(-1)\np.log_()\nreturn p", "p.log_()", "p = x.log_softmax(-1)"),
    (LOG_SOFTMAX, GAP, "p = x.softmax(-1)\nreturn p.log_()", "p.log_()", "return x.log_softmax(-1)"),
    (SOFTMAX, LARGE, "e = x.exp()\ne /= e.sum(-1, keepdim=True)\nreturn e", "x.exp()", "e = x.softmax(-1)"),
    (SOFTMAX, LARGE, "e = x.exp()\ne.div_(e.sum(-1, keepdim=True))\nreturn e", "x.exp()", "e = x.softmax(-1)"),
    (LOG, ONE_ZERO, "y = x * 1\ny.log_()\nreturn y", "y.log_()", None),
    (LOG, ONE_ZERO, "m = x.sum()\ny = x.abs().log_() + m\nreturn y", "x.abs().log_()", None),
    (LOG, ONE_ZERO, "y = x.abs().mul_(2).log_()\nreturn y + x.sum()", "x.abs().mul_(2).log_()", None),
]


@pytest.mark.parametrize(("intent", "bad", "body", "site", "line"), IN_PLACE, ids=[c[2] for c in IN_PLACE])
def test_what_writes_in_place_gives_its_name_another_value(intent, bad, body, site, line) -> None:  # noqa: ANN001
    text = function(body)
    found = mended(text, site, intent)
    assert is_cured_forward(text, found.edited, bad, GOOD)
    assert line is None or changed(text, found.edited) == [line]


@pytest.mark.parametrize(("intent", "bad", "body", "site"), CASES, ids=[f"{c[0].title}: {c[2]}" for c in CASES])
def test_an_edit_made_again_changes_nothing(intent, bad, body, site) -> None:  # noqa: ANN001 - a table
    *rest, last = body.split("\n")
    text = function("\n".join([*rest, f"return {last}"]))
    found = mended(text, site, intent)
    if site in found.edited:
        again = all_of(found.edited, site, intent)
        assert not any(isinstance(c, Candidate) for c in again), changed(found.edited, again[0].edited)


@pytest.mark.parametrize("target", ["x.data", "x[0]", "x.T[:]"])
def test_what_is_written_into_an_object_stays_written_into_it(target: str) -> None:
    text = function(f"x = x.clone()\nd = x.sum()\n{target} /= d\nreturn x")
    edited = mended(text, f"{target} /= d", DIVISION).edited
    assert changed(text, edited) == [f"{target} /= torch.where(d == 0, 1, d)"]
    assert is_cured_forward(text, edited, ZERO, GOOD)


def test_an_object_that_others_may_hold_is_not_given_another_value() -> None:
    text = function("e = x.exp()\nx.data = e\nx.data /= e.sum(-1, keepdim=True)\nreturn x")
    found = all_of(text, "x.data /= e.sum(-1, keepdim=True)", SOFTMAX)
    assert not any(isinstance(one, Candidate) for one in found)


def test_a_guarded_denominator_is_not_guarded_again() -> None:
    text = function("return x / x.sum()")
    once = mended(text, "x / x.sum()", DIVISION).edited
    site = changed(text, once)[-1].removeprefix("return ")
    again = all_of(once, site, DIVISION)
    assert [getattr(c, "why", None) for c in again] == ["it is written so already"]


def test_what_is_the_same_elsewhere_in_the_function_is_mended_with_it() -> None:
    text = function("p = x.softmax(-1)\na = p.log().sum()\nreturn a + p.log().mean()")
    edited = mended(text, "p.log()", LOG_SOFTMAX).edited
    assert "p.log()" not in edited
    assert is_cured(text, edited, [GAP], [GOOD])


def test_a_helper_of_the_same_file_is_followed_to_its_caller() -> None:
    text = f"{HEAD}def lg(t):\n    return torch.log(t)\n\n\ndef f(x):\n    return lg(x.softmax(-1)).sum()\n"
    edited = mended(text, "torch.log(t)", LOG_SOFTMAX).edited
    assert "def lg(t):\n    return torch.log(t)" in edited
    assert is_cured(text, edited, [GAP], [GOOD])


def test_a_helper_of_the_same_file_is_followed_to_what_it_computes() -> None:
    text = (
        f"{HEAD}def probabilities(t, d=-1):\n    e = t.exp()\n    return e / e.sum(d, keepdim=True)\n\n\n"
        "def f(x):\n    return (probabilities(x) * 2)\n"
    )
    edited = mended(text, "e / e.sum(d, keepdim=True)", SOFTMAX).edited
    assert changed(text, edited) == ["return t.softmax(d)"]
    assert is_cured(text, edited, [LARGE], [GOOD])


def test_a_module_of_the_class_is_known() -> None:
    text = (
        f"{HEAD}class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.act = torch.nn.Softmax(dim=-1)\n\n    def forward(self, x):\n"
        "        return torch.log(self.act(x))\n\n\ndef f(x):\n    return Net()(x)\n"
    )
    edited = mended(text, "torch.log(self.act(x))", LOG_SOFTMAX).edited
    assert is_cured(text, edited, [GAP], [GOOD])


def test_an_operand_that_does_something_is_evaluated_once() -> None:
    text = function(
        "calls = []\ndef g(t):\n    calls.append(1)\n    return t * 2\ny = x / g(x)\nassert len(calls) == 1\nreturn y"
    )
    edited = mended(text, "x / g(x)", DIVISION).edited
    assert is_cured(text, edited, [ZERO], [GOOD])


def test_an_operand_that_is_assigned_in_between_is_kept_by_a_name() -> None:
    text = function("p = x.softmax(-1)\nx = x + 1\nreturn p.log() + x")
    found = mended(text, "p.log()", LOG_SOFTMAX)
    assert changed(text, found.edited) == ["p = (operand := x).softmax(-1)", "return operand.log_softmax(-1) + x"]
    assert is_cured(text, found.edited, [GAP], [GOOD])


def test_a_reduction_without_a_dimension_is_one_over_everything() -> None:
    text = function("return x.exp() / x.exp().sum()")
    edited = mended(text, "x.exp() / x.exp().sum()", SOFTMAX).edited
    two = torch.tensor([[100.0, 1.0], [0.0, 3.0]])
    assert is_finite(computed(edited, two))
    assert is_cured(text, edited, [two], [two / 100])


NEIGHBOURS = FixIntent(
    "the factors", "reformulation", "cumprod(x, -1)[..., 1:] / cumprod(x, -1)[..., :-1]", "x[..., 1:]"
)
SMALL = torch.full((4,), 1e-21)
FACTORS = torch.tensor([0.5, 0.25, 2.0, 1.0])


@pytest.mark.parametrize(
    "body",
    [
        "torch.cumprod(x, -1)[..., 1:] / torch.cumprod(x, -1)[..., :-1]",
        "p = x.cumprod(dim=-1)\nlater = p[..., 1:]\nlater / p[..., :-1]",
    ],
)
def test_parts_of_a_tensor_are_part_of_a_pattern(body: str) -> None:
    *before, last = body.splitlines()
    text = function("\n".join([*before, f"return {last}"]))
    candidate = mended(text, last, NEIGHBOURS)
    assert changed(text, candidate.edited) == ["return x[..., 1:]"]
    assert is_cured(text, candidate.edited, (SMALL,), (FACTORS,))


@pytest.mark.parametrize(
    "parts", [("..., 1:", "..., 1:"), ("..., 2:", "..., :-2"), ("1:", ":-1"), ("..., n:", "..., :-1")]
)
def test_other_parts_are_not_taken_for_it(parts: tuple[str, str]) -> None:
    last = f"torch.cumprod(x, -1)[{parts[0]}] / torch.cumprod(x, -1)[{parts[1]}]"
    assert declined(function(f"n = 1\nreturn {last}"), last, NEIGHBOURS)


def test_a_tensor_that_is_written_into_between_is_another() -> None:
    text = function("p = x.cumprod(-1)\nlater = p[..., 1:]\np += 1\nreturn later / p[..., :-1]")
    assert declined(text, "later / p[..., :-1]", NEIGHBOURS)


@pytest.mark.parametrize(
    ("code", "divisor"),
    [("(1.0 / n) / (x @ y)", "x @ y"), ("(x / n) / y.sum()", "y.sum()"), ("torch.div(x / 2 / n, y)", "y")],
)
def test_of_several_divisors_that_of_the_birth_is_guarded(code: str, divisor: str) -> None:
    text = function(f"n = len(x)\nreturn {code}", "x, y")
    assert f"torch.where({divisor} == 0, 1, {divisor})" in mended(text, code, DIVISION).edited.replace(
        "operand", divisor
    )


def test_a_call_that_stays_where_it_was_is_not_made_twice() -> None:
    """Of one that draws numbers, or counts its calls, it would be another; one that is pure may stand twice."""
    masked = FixIntent("masked", "reformulation", "exp(x) * m", "exp(where(m == 0, 0, x)) * m")
    drawn = mended(function("return torch.exp(x) * gate(x)"), "torch.exp(x)", masked).edited
    assert drawn.count("gate(x)") == 1
    pure = mended(function("return torch.exp(x) * torch.relu(x)"), "torch.exp(x)", masked).edited
    assert pure.count("torch.relu(x)") == 2


def test_a_number_beside_a_logarithm_is_a_tensor() -> None:
    added = FixIntent("logaddexp", "reformulation", "log(exp(x) + c)", "logaddexp(x, log(c))")
    text = function("return torch.log(torch.exp(x) + c)", "x, c: float = 0.5")
    assert "x.new_tensor(math.log(c))" in mended(text, "torch.log(torch.exp(x) + c)", added).edited
