"""WN402 arc-at-limit: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_cosine_beyond_one() -> object:
    return torch.acos(torch.tensor([1.0000001, 0.5]))


def the_end_of_the_domain() -> object:
    return torch.atanh(torch.tensor([1.0, 0.5]))


def the_derivative_at_one() -> object:
    cosine = torch.tensor([1.0, 0.5], requires_grad=True)
    torch.acos(cosine).sum().backward()
    return cosine.grad


def inside() -> object:
    cosine = torch.tensor([1.0, 0.5], requires_grad=True)
    torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6)).sum().backward()
    return cosine.grad


@pytest.mark.parametrize("program", [a_cosine_beyond_one, the_end_of_the_domain, the_derivative_at_one])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN402"
    assert said == snapshot


@pytest.mark.parametrize("program", [inside])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
