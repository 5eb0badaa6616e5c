"""WN210 x-log-x: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn

inf = float("inf")


def an_entropy() -> object:
    p = torch.tensor([1.0, 0.0])
    return -(p * p.log()).sum()


def a_divergence() -> object:
    p, q = torch.tensor([1.0, 0.0]), torch.tensor([0.25, 0.75])
    m = 0.5 * (p + q)
    return (p * (p / m).log()).sum()


def in_bits() -> object:
    p = torch.tensor([1.0, 0.0])
    bits = torch.log2(p)
    return torch.sum(-p * bits)


def in_double() -> object:
    p = torch.tensor([1.0, 0.0], dtype=torch.float64)
    return torch.mul(torch.log(p), p)


def xlogy() -> object:
    p = torch.tensor([1.0, 0.0])
    return torch.xlogy(p, p.clamp_min(torch.finfo(p.dtype).tiny)).sum()


def the_gradient_of_xlogy() -> object:
    p = torch.tensor([1.0, 0.0], requires_grad=True)
    torch.xlogy(p, p).sum().backward()
    return p.grad


def the_gradient_of_entr() -> object:
    p = torch.tensor([1.0, 0.0], requires_grad=True)
    torch.special.entr(p).sum().backward()
    return p.grad


def the_gradient_of_a_target() -> object:
    p = torch.tensor([1.0, 0.0], requires_grad=True)
    nn.functional.kl_div(torch.tensor([0.5, 0.5]).log(), p, reduction="sum").backward()
    return p.grad


def its_gradient() -> object:
    p = torch.tensor([1.0, 0.0], requires_grad=True)
    torch.where(p > 0, p * p.log(), 0.0).sum().backward()
    return p.grad


@pytest.mark.parametrize(
    "program",
    [
        an_entropy,
        a_divergence,
        in_bits,
        in_double,
        the_gradient_of_xlogy,
        the_gradient_of_entr,
        the_gradient_of_a_target,
        its_gradient,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN210"
    assert said == snapshot


@pytest.mark.parametrize("program", [xlogy])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_a_product_with_something_else_is_left_to_others(first: Callable[..., dict[str, str]]) -> None:
    assert first(lambda: torch.tensor([0.0, 1.0]) * torch.tensor([0.0, 1.0]).log())["rule"] == "WN201"
