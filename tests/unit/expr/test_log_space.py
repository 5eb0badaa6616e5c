"""Log space: a logarithm as a formula of the logarithms of its parts, in the source that is written for it."""

from __future__ import annotations

import ast
import math

import pytest
import torch

from tests.unit.fixes.python.mended import all_of, called, computed, function, is_cured, mended
from whynan.expr.from_python import Reader
from whynan.expr.log_space import logarithms
from whynan.fixes.candidates import Candidate
from whynan.source.text import Place

X = torch.tensor([[0.5, 1.25, -0.75], [0.25, -1.0, 2.0]])
Y = torch.tensor([[0.25, 0.75, 0.5], [0.125, 0.5, 0.25]])
CASES = [
    ("torch.log(torch.exp(x) * y)", -200.0),
    ("torch.log((torch.exp(x) * y).sum(-1))", -200.0),
    ("torch.log(torch.sum(y * torch.exp(x) / (2.5 * y), dim=1, keepdim=True))", 200.0),
    ("torch.log(torch.mean(torch.exp(x), -1))", 200.0),
    ("torch.log(torch.prod(torch.sigmoid(x), -1))", -200.0),
    ("torch.log(1 - torch.sigmoid(x))", 200.0),
    ("torch.log(y * torch.softmax(x, -1) + (1 - y) * torch.exp(x - 3))", 200.0),
    ("torch.log(x.softmax(-1) @ (1 + torch.eye(3)))", 0.0),
    ("torch.log(torch.cumsum(x.exp(), dim=-1))", 200.0),
    ("p = torch.sigmoid(x)\nq = p[:, 1] * p[:, 0]\nq.log2()", -200.0),
    ("p = x.softmax(-1)\ntorch.log(p.gather(1, torch.tensor([[1], [2]])).squeeze(1))", 0.0),
    ("torch.log(torch.exp(x).masked_select(y > 0.3).sum(-1))", -200.0),
    ("torch.log(torch.exp(x).T.sum(-1))", -200.0),
    ("torch.log(torch.exp(x).narrow(1, 0, 2).movedim(0, 1).repeat(2, 1).sum(-1))", -200.0),
    ("torch.log(torch.where(y > 0.3, torch.exp(x), y))", -200.0),
    ("torch.log(torch.exp(x) ** 2 / y)", -200.0),
    ("torch.log(torch.exp(x.abs() + 0.1) - 1)", 200.0),
    ("torch.log(torch.special.i0(x))", 200.0),
    ("torch.log(x.exp()[:, 0] / torch.sum(torch.exp(x) * y, dim=1))", 200.0),
    ("total = x.exp().sum(-1, keepdim=True)\ntorch.log(torch.exp(x) / total)", 200.0),
    ("torch.log(torch.cat([torch.exp(x).diagonal(1), torch.exp(x).diagonal(-1)]))", -200.0),
    ("torch.log(torch.stack((y, torch.exp(x)), dim=1).sum(1))", 200.0),
    ("torch.log(torch.exp(x).view(3, 2).clamp(min=1e-4))", 200.0),
    ("torch.log(torch.exp(x).masked_fill(y < 0.3, 0.0).sum(-1))", 200.0),
    ("p = torch.exp(x[:, 0])\ntorch.log(p / (p + torch.exp(x).sum(-1)))", 200.0),
    ("p = torch.exp(x)\nq = y + p\ntorch.log(p / q)", 200.0),
]
BRANCHES = [
    "torch.where(y > 0.3, torch.exp(x), 0.75 - y)",
    "torch.where(y <= 0.3, 0.75 - y, torch.exp(x))",
    "torch.exp(x).where(y > 0.3, 0.7 - y)",
    "torch.where(y > 0.3, torch.exp(x), torch.exp(x) * (0.75 - y))",
    "torch.where(y > 0.3, torch.exp(x), torch.exp(y) + (0.75 - y))",
    "torch.where(y > 0.3, torch.exp(x), torch.maximum(torch.exp(y), 0.7 - y))",
    "torch.where(y > 0.3, torch.exp(x), 1 - torch.exp(y - 0.75))",
    "torch.where(y > 0.3, torch.exp(x), torch.exp(0.75 - y) - 1)",
    "torch.where(y > 0.3, torch.exp(x), torch.where(y > 0.2, 0.75 - y, torch.exp(y)))",
    "torch.where(y > 0.2, torch.where(y > 0.4, torch.exp(x), 0.5 - y), 0.7 - y)",
    "torch.where(y > 0.3, torch.exp(x), torch.sum((0.75 - y) * torch.exp(y) + 2e-9, -1, keepdim=True))",
    "torch.where(y > 0.3, torch.exp(x), (torch.exp(y) * (0.75 - y))[:, [0, 2, 1]])",
]


@pytest.mark.parametrize(("code", "shift"), CASES)
def test_the_formula_is_the_same_logarithm_and_finite_where_the_exponential_is_not(code: str, shift: float) -> None:
    *before, last = code.split("\n")
    text = function("\n".join([*before, f"return {last}"]), "x, y")
    edited = mended(text, last).edited
    assert is_cured(text, edited, (X + shift, Y), (X, Y)) if shift else torch.allclose(*values(text, edited))


@pytest.mark.parametrize(
    ("before", "divisor", "written"),
    [
        ("b, t = x.size()", "t", "math.log(t)"),
        ("b, t = x.shape", "(2 * t)", "math.log("),
        ("t = len(x)", "t", "math.log(t)"),
        ("t = y[0, 0]", "t", "torch.log(t)"),
        ("b, t = y[:, :2].T", "t", "torch.log(t"),
    ],
)
def test_the_logarithm_of_a_number_of_pythons_is_one(before: str, divisor: str, written: str) -> None:
    last = f"torch.log(torch.exp(x).sum(1) / {divisor})"
    text = function(f"{before}\nreturn {last}", "x, y")
    found = mended(text, last)
    assert written in found.edited
    if written.startswith("math."):
        assert is_cured(text, found.edited, (X + 200, Y), (X, Y))


def test_names_that_were_given_other_values_meanwhile_are_followed() -> None:
    before = "p = x[:, 0] * 2\np = torch.exp(p / 2)\nq = x.matmul(torch.eye(3))\nq = torch.exp(q).sum(1)"
    text = function(f"{before}\nreturn -torch.log(p / q)", "x, y")
    found = mended(text, "torch.log(p / q)")
    assert is_cured(text, found.edited, (X + 200, Y), (X, Y))
    values = {"x": X, "y": Y}
    assert found.original.inputs == ("x",)
    assert torch.allclose(called(found.original, values), called(found.repaired, values), atol=1e-6)


@pytest.mark.parametrize("branches", BRANCHES)
def test_a_branch_that_is_not_chosen_may_be_out_of_the_domain_of_its_logarithm(branches: str) -> None:
    last = f"torch.log({branches})"
    text = function(f"return {last}", "x, y")
    assert is_cured(text, mended(text, last).edited, (X + 200, Y), (X, Y))


def test_what_is_nearly_all_of_a_sum_has_a_logarithm_that_keeps_its_digits() -> None:
    last = "torch.log(p / (p + torch.exp(y)))"
    text = function(f"p = torch.exp(x)\nreturn {last}", "x, y")
    x, y = torch.tensor(30.0), torch.tensor(1.0)
    found = computed(mended(text, last).edited, x, y)[0]
    assert found.item() == pytest.approx(-math.exp(-29), rel=1e-5)


@pytest.mark.parametrize("exponent", ["0.123456789", "2", "12345678"])
def test_an_exponent_keeps_its_digits(exponent: str) -> None:
    last = f"torch.log(torch.exp(x) ** {exponent})"
    assert f"return {exponent} * x\n" in mended(function(f"return {last}"), last).edited


def values(text: str, edited: str) -> list[torch.Tensor]:
    """What a file's function gives, before and after an edit."""
    assert edited != text
    return [computed(each, X, Y)[0] for each in (text, edited)]


@pytest.mark.parametrize(
    "code",
    [
        "torch.log(x)",
        "torch.log(x + y)",
        "torch.log(torch.exp(x) - y)",
        "torch.log(-torch.exp(x))",
        "torch.log(torch.sin(x) * y)",
        "torch.log(torch.exp(x) - torch.exp(y))",
        "torch.sqrt(torch.exp(x))",
        "torch.log(torch.sigmoid(x) + y - 1)",
    ],
)
def test_nothing_is_written_where_a_part_may_be_negative_or_has_no_exponential(code: str) -> None:
    place = Place(f"import torch\n\n\ndef f(x, y):\n    return {code}\n")
    node = next(n for n in place.parents if isinstance(n, ast.Return)).value
    assert node is not None
    reader = Reader(place, place.function(node))
    assert not logarithms(reader, reader.read(node), "float32")


def test_what_is_divided_by_a_sum_that_it_is_most_of_keeps_its_digits() -> None:
    last = "torch.log(torch.exp(x)[:, 0] / torch.exp(x).sum(1))"
    text = function(f"return {last}", "x, y")
    x = torch.tensor([[100.0, 90.0, 85.0]])
    exact = -torch.log1p(torch.exp(x[:, 1:].double() - 100.0).sum(1))
    made = [one.edited for one in all_of(text, last) if isinstance(one, Candidate)]
    far = [(computed(edited, x, Y)[0].double() - exact).abs().max() for edited in made]
    # a logarithm less another has the digits of these
    assert far[1] < 1e-7
    assert len(far) == 2


@pytest.mark.parametrize("code", ["torch.exp(x) / torch.exp(x).sum(1)", "torch.exp(x[0, 0]) / torch.exp(x).sum(1)"])
def test_one_form_is_right_where_what_is_divided_is_not_of_the_shape_of_the_sum(code: str) -> None:
    last = f"torch.log({code})"
    square = torch.tensor([[0.5, 1.25, -0.75], [0.25, -1.0, 2.0], [1.0, 0.5, 0.0]])
    text = function(f"return {last}", "x, y")
    assert is_cured(text, mended(text, last).edited, (square + 200, Y), (square, Y))


def test_weights_of_which_some_are_0_stay_weights() -> None:
    last = "torch.log(p)"
    text = function(f"p = (y * torch.exp(-x.square() / 2) / 2.5).sum(1)\nreturn {last}", "x, y")
    made = [one.edited for one in all_of(text, last) if isinstance(one, Candidate)]
    (weighted,) = [edited for edited in made if "logsumexp" not in edited]
    assert is_cured(text, weighted, (X + 100, Y), (X, Y))
    some = Y * torch.tensor([0.0, 1.0, 1.0])
    for edited in made:
        weights = computed(edited, X + 100, some)[1][1]
        assert bool(weights.isfinite().all()) is (edited == weighted)
