"""What was a hazard in an older PyTorch, or is thought to be one, and is none: nothing fires on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

ZEROS = torch.zeros(2, 3)
SAME = torch.ones(2, 3)
ROWS = torch.tensor([[True, True], [False, False]])
QUERY = torch.ones(1, 1, 2, 4)


def masked_attention(mask: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def fitted(x: Tensor) -> Tensor:
    return torch.linalg.lstsq(x, torch.ones(3, 2)).solution


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    **{f"norm of order {p}": (lambda x, p=p: x.norm(p, dim=-1), (ZEROS,)) for p in (0.5, 1, 1.5, 2, 3)},
    **{
        f"vector_norm of order {p}": (lambda x, p=p: torch.linalg.vector_norm(x, p, dim=-1), (ZEROS,))
        for p in (0.5, 1, 2, 3)
    },
    "the nuclear norm": (lambda x: torch.linalg.matrix_norm(x, "nuc"), (ZEROS,)),
    "the spectral norm": (lambda x: torch.linalg.matrix_norm(x, 2), (ZEROS,)),
    "pairwise_distance": (lambda x, y: F.pairwise_distance(x, y), (SAME, SAME)),
    **{f"cdist of order {p}": (lambda x, p=p: torch.cdist(x, x, p=p), (SAME,)) for p in (0.5, 1.5, 2.0)},
    "atan2 at the origin": (lambda x, y: torch.atan2(x, y), (ZEROS, ZEROS)),
    "pow(0, 0)": (lambda x, p: x**p, (ZEROS, ZEROS)),
    "pow(0, 0) of a number": (lambda x: x**0, (ZEROS,)),
    "prod with a zero": (lambda x: x.prod(-1), (torch.tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0]]),)),
    "cumprod with a zero": (lambda x: x.cumprod(-1), (torch.tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0]]),)),
    "det of a matrix of rank n - 2": (lambda x: torch.linalg.det(x), (torch.ones(3, 3),)),
    "pinv": (lambda x: torch.linalg.pinv(x), (torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]),)),
    "lstsq": (fitted, (torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]),)),
    "attention to nothing, by booleans": (masked_attention(ROWS), (QUERY,)),
    "attention to nothing, by -inf": (masked_attention(torch.where(ROWS, 0.0, -torch.inf)), (QUERY,)),
    "binary_cross_entropy of 0 and 1": (
        lambda p: F.binary_cross_entropy(p, torch.tensor([1.0, 0.0, 1.0, 0.0])),
        (torch.tensor([0.0, 1.0, 1.0, 0.0]),),
    ),
    "smooth_l1_loss with beta 0": (lambda x, y: F.smooth_l1_loss(x, y, beta=0.0), (SAME, SAME)),
    "lp_pool of zeros": (lambda x: F.lp_pool1d(x, 2.0, 2), (torch.zeros(1, 1, 4),)),
    "the entropy of a Bernoulli": (
        lambda p: torch.distributions.Bernoulli(probs=p).entropy(),
        (torch.tensor([0.0, 1.0, 0.5]),),
    ),
    "the entropy of a Categorical": (
        lambda p: torch.distributions.Categorical(probs=p).entropy(),
        (torch.tensor([[0.0, 1.0], [0.5, 0.5]]),),
    ),
    "sinc(0)": (lambda x: torch.sinc(x), (ZEROS,)),
    "complex abs(0)": (lambda x: x.abs(), (torch.zeros(2, dtype=torch.complex64),)),
    "complex angle(0)": (lambda x: x.angle(), (torch.zeros(2, dtype=torch.complex64),)),
    "complex sgn(0)": (lambda x: x.sgn().abs(), (torch.zeros(2, dtype=torch.complex64),)),
    "layer_norm of a constant row": (lambda x: F.layer_norm(x, (3,)), (SAME,)),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_fires(name: str, clean: Callable[..., bool]) -> None:
    function, inputs = CASES[name]

    def program() -> object:
        fresh = [x.clone().requires_grad_() for x in inputs]
        function(*fresh).sum().backward()
        return [x.grad for x in fresh]

    assert clean(program)
