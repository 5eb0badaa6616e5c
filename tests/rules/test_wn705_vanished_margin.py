"""WN705 vanished-margin: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def log_of_the_complement() -> object:
    p = torch.tensor([1.0, 0.5]).clamp(1e-8, 1 - 1e-8)
    return torch.log(1 - p)


def in_float16() -> object:
    p = torch.tensor([1.0, 0.5]).half().clamp(max=1 - 1e-4)
    return torch.log1p(-p)


def artanh() -> object:
    return torch.atanh(torch.tensor([1.0, 0.5]).clamp(-1 + 1e-8, 1 - 1e-8))


def logit() -> object:
    return torch.logit(torch.tensor([1.0, 0.5]), eps=1e-8)


def its_gradient() -> object:
    cosine = torch.tensor([1.0, 0.5], requires_grad=True)
    torch.acos(cosine.clamp(-1 + 1e-8, 1 - 1e-8)).sum().backward()
    return cosine.grad


def wide_enough() -> object:
    p = torch.tensor([1.0, 0.5]).clamp(1e-6, 1 - 1e-6)
    return torch.log(1 - p)


def in_float64() -> object:
    return torch.atanh(torch.tensor([1.0, 0.5]).double().clamp(-1 + 1e-8, 1 - 1e-8))


def in_a_cross_entropy() -> object:
    p, y = torch.tensor([1.0, 0.5]).half().clamp(1e-8, 1 - 1e-8), torch.tensor([1.0, 0.0]).half()
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


@pytest.mark.parametrize(
    "program", [log_of_the_complement, in_float16, artanh, logit, its_gradient, in_a_cross_entropy]
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN705"
    assert said == snapshot


@pytest.mark.parametrize("program", [wide_enough, in_float64])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def without_a_clamp() -> object:
    return torch.log(1 - torch.tensor([1.0, 0.5]))


def a_clamp_at_one() -> object:
    return torch.atanh(torch.tensor([1.5, 0.5]).clamp(-1, 1))


def the_other_end() -> object:
    return torch.log(torch.tensor([0.0, 0.5]).clamp(0, 1 - 1e-8))


def an_end_without_a_margin() -> object:
    return torch.atanh(torch.tensor([-1.0, 0.5]).clamp(-1, 1 - 1e-8))


@pytest.mark.parametrize("program", [an_end_without_a_margin, without_a_clamp, a_clamp_at_one, the_other_end])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN705"
