"""Which operand a birth turns on: what the operator means decides, not which number is the greatest or a zero."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import whynan

GREAT, SMALL, ONE, TWO = (torch.tensor([value]) for value in (1e30, 1e-30, 1.0, 2.0))
ROW = torch.tensor([[1e35, 2.0]])
FACTOR = torch.full((2, 3), 1e5)
ZEROS = torch.zeros(3)
CASES: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], tuple[Tensor, Tensor, Tensor], str]] = {
    "a linear layer with a bias of 0": (
        lambda x, w, b: functional.linear(x * 1, w.T, b * 1),
        (ROW, FACTOR, ZEROS),
        "1e35",
    ),
    "a product with a zero added": (lambda x, w, b: torch.addmm(b * 1, x * 1, w), (ROW, FACTOR, ZEROS), "1e35"),
    "the other factor": (
        lambda x, w, b: torch.addmm(b * 1, x, w.T * 1),
        (FACTOR.T[:1], ROW.T[:, :1].T, ZEROS[:1]),
        "1e35",
    ),
    "what is added to a product": (
        lambda x, w, b: torch.addmm(b * 2, x, w),
        (torch.ones(1, 2), torch.full((2, 3), 9e37), torch.full((3,), 1.2e38)),
        "1.2e38",
    ),
    "a convolution with a bias of 0": (
        lambda x, w, b: functional.conv1d((x * 1).reshape(1, 1, 2), w.reshape(-1)[:1].reshape(1, 1, 1), b[:1] * 1),
        (ROW, FACTOR, ZEROS),
        "1e35",
    ),
    "a quotient of a small denominator": (lambda a, b, _: (a * 1) / (b * 1e-10), (TWO, SMALL, ONE), "1e-30"),
    "a quotient of a great numerator": (lambda a, b, _: (a * 1) / (b * 1e-1), (GREAT, SMALL * 1e22, ONE), "1e30"),
    "a quotient that is added to 0": (
        lambda a, b, c: torch.addcdiv(c * 0, a * 1, b * 1),
        (GREAT, SMALL, torch.tensor([3.0])),
        "1e30",
    ),
    "a product that is added to 0": (
        lambda a, b, c: torch.addcmul(c * 0, a * 1, b * 2),
        (GREAT, GREAT, torch.tensor([3.0])),
        "1e30",
    ),
    "between 0 and a great end": (lambda a, b, c: torch.lerp(c * 0, a * 1, b * 1), (GREAT, GREAT, TWO), "1e30"),
    "the logarithm of a negative number": (lambda a, b, _: torch.xlogy(a * 1, b - 2), (TWO * 2, ONE, ONE), "1 minus 2"),
    "a power of a negative base": (lambda a, b, _: (a - 3) ** (b * 0.5), (ONE, ONE, ONE), "1 minus 3"),
    "a great exponent": (lambda a, b, _: (a * 2) ** (b * 10), (ONE * 5, ONE * 50, ONE), "50 times 10"),
    "a row of zeros with a bias of 0": (
        lambda x, w, b: functional.layer_norm(x - x, (2,), w[:, 0] * 1, b[:2] * 1, 0.0),
        (ROW, FACTOR, ZEROS),
        "sub made it",
    ),
    "weights of 0": (
        lambda x, w, _: functional.nll_loss(x * 1, torch.tensor([1]), w * 0),
        (torch.tensor([[-1.0, -2.0]]), torch.ones(2), ONE),
        "mul made it 0",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_that_of_the_operand_that_decides(case: str) -> None:
    function, given, said = CASES[case]
    report = whynan.explain(function, *given)
    causes = [link.summary for link in report.findings[0].chain if link.role == "cause"]
    assert any(said in cause for cause in causes), causes
    assert not any("times 0 is 0" in cause or "writes 0" in cause for cause in causes)
