"""What a selection leaves out is given a harmless operand there: its gradient is finite, and nothing else changes."""

from __future__ import annotations

import pytest
import torch

from tests.unit.fixes.python.mended import all_of, changed, computed, declined, function, is_cured, is_finite, mended
from whynan.fixes.candidates import Candidate
from whynan.records.neighbourhood import Neighbourhood, Selection

X = torch.tensor([-1.0, 0.0, 2.0])
GOOD = torch.tensor([0.5, 1.0, 2.0])

CASES = [
    ("return torch.where(x > 0, x.log(), 0.0)", "x.log()"),
    ("return torch.where(x <= 0, torch.zeros_like(x), torch.sqrt(x))", "torch.sqrt(x)"),
    ("return x.log().masked_fill(x <= 0, 0.0)", "x.log()"),
    ("return (1 / x).where(x != 0, x)", "1 / x"),
    ("y = x.sqrt()\nreturn torch.where(x > 0, y, 0.0)", "x.sqrt()"),
    ("m = x > 0\ny = 2 * torch.log(x)\nz = y + 1\nreturn torch.where(m, z, x)", "torch.log(x)"),
    ("return torch.where(x.abs() > 1e-3, torch.rsqrt(x * x), x)", "torch.rsqrt(x * x)"),
]


@pytest.mark.parametrize(("body", "site"), CASES)
def test_a_selection_is_made_twice(body: str, site: str) -> None:
    text = function(body)
    found = mended(text, site)
    assert found.kind == "guard"
    assert is_cured(text, found.edited, [X], [GOOD]), changed(text, found.edited)
    assert torch.equal(computed(text, X)[0].nan_to_num(), computed(found.edited, X)[0].nan_to_num())


def test_a_product_with_a_mask_is_a_selection_where_the_run_says_so() -> None:
    text = function("return x.sqrt() * m", "x, m")
    assert all_of(text, "x.sqrt()") == []
    left_out = Selection(op="aten.mul.Tensor", side="self", mask="m", line=6)
    around = Neighbourhood(dialect="aten", middle=0, operations=(), left_out=left_out)
    found = mended(text, "x.sqrt()", around=around)
    mask = torch.tensor([False, False, True])
    assert is_cured(text, found.edited, [X, mask], [GOOD, mask])


def test_it_is_not_made_a_third_time() -> None:
    text = function("return torch.where(x > 0, x.log(), 0.0)")
    edited = mended(text, "x.log()").edited
    assert declined(edited, "torch.where(x > 0, x, 1).log()") == ["it is written so already"]


@pytest.mark.parametrize(
    ("later", "mask"),
    [
        ("m = x > 0", "torch.where(x > 0, x, 1).log()"),
        ("x = x + 1\nm = x > 1", "torch.where((x + 1) > 1, x, 1).log()"),
        ("k = x > 0\nm = k & (x < 9)", "torch.where((x > 0) & (x < 9), x, 1).log()"),
    ],
)
def test_a_mask_that_is_made_later_is_written_out(later: str, mask: str) -> None:
    text = function(f"y = x.log()\n{later}\nreturn torch.where(m, y, 0.0)")
    edited = mended(text, "x.log()").edited
    assert mask in edited
    x, healthy = torch.tensor([0.0, 0.5]), torch.tensor([0.25, 0.5])
    assert is_finite(computed(edited, x))
    assert torch.equal(computed(edited, healthy)[0], computed(text, healthy)[0])


@pytest.mark.parametrize("later", ["m = x.log() > y", "m = x > 0\nm &= x < 9"])
def test_a_mask_that_is_made_of_what_is_not_there_yet_is_declined(later: str) -> None:
    text = function(f"y = x.log()\n{later}\nreturn torch.where(m, y, 0.0)")
    (why,) = declined(text, "x.log()")
    assert "of the mask is not known yet where the operand is read" in why


def test_a_mask_that_does_something_is_declined() -> None:
    text = function("return torch.where(g(x), x.log(), 0.0)")
    assert declined(text, "x.log()") == ["g(x) would be evaluated twice"]


BRANCHES = [
    "outside = 1 / torch.sqrt(x - 1)\ninside = 1 / torch.sqrt(1 - x)\nreturn torch.where(x > 1, outside, inside)",
    "m = 1 < x\ninside = (1 - x).log() + x\nreturn torch.where(m, (x - 1).sqrt() * (x - 1).log(), inside)",
    "return torch.where(x.abs() < 1, torch.arctanh(x) / (1 - x), torch.sqrt(x.abs() - 1) ** 0.3)",
]


@pytest.mark.parametrize("body", BRANCHES)
def test_each_branch_is_computed_of_operands_for_which_it_is_taken(body: str) -> None:
    text = function(body)
    site = next(code for code in ("torch.sqrt(x - 1)", "(1 - x).log()", "torch.arctanh(x)") if code in text)
    found = next(one for one in all_of(text, site) if isinstance(one, Candidate) and "each branch" in one.title)
    assert found.kind == "guard"
    x, healthy = torch.tensor([0.25, 0.5, 3.0]), torch.tensor([0.25, 0.5, 0.75])
    assert not is_finite(computed(text, x))
    assert is_finite(computed(found.edited, x))
    assert torch.equal(computed(found.edited, x)[0], computed(text, x)[0])
    assert torch.equal(computed(found.edited, healthy)[0], computed(text, healthy)[0])


def test_a_branch_that_is_read_elsewhere_stays_as_it_is() -> None:
    text = function("y = torch.sqrt(x - 1)\nz = torch.where(x > 1, y, (1 - x).log())\nreturn z + y")
    assert not [one for one in all_of(text, "torch.sqrt(x - 1)") if "each branch" in one.title]
    (found,) = [one for one in all_of(text, "(1 - x).log()") if "each branch" in one.title]
    assert isinstance(found, Candidate)
    assert "y = torch.sqrt(x - 1)" in found.edited


def test_a_birth_that_the_variable_itself_was_made_of_is_in_no_branch() -> None:
    text = function("y = torch.sqrt(x)\nreturn torch.log(torch.where(y == 0, torch.finfo(y.dtype).tiny, y * 1))")
    assert not [one for one in all_of(text, "torch.sqrt(x)") if "each branch" in one.title]
