"""WN110 cosine-by-hand: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F


def norms() -> object:
    a, b = torch.zeros(3), torch.ones(3)
    return (a * b).sum() / (a.norm() * b.norm())


def a_dot_product() -> object:
    a, b = torch.zeros(3), torch.ones(3)
    lengths = torch.sqrt(torch.dot(a, a)) * torch.sqrt(torch.dot(b, b))
    return torch.dot(a, b) / lengths


def one_root() -> object:
    a, b = torch.zeros(3), torch.ones(3)
    return (a * b).sum() / torch.sqrt((a**2).sum() * (b**2).sum())


def cosine_similarity() -> object:
    return F.cosine_similarity(torch.zeros(3), torch.ones(3), dim=0)


def its_gradient() -> object:
    a, b = torch.zeros(3, requires_grad=True), torch.ones(3)
    cosine = (a * b).sum() / (a.norm() * b.norm())
    torch.where(cosine.isfinite(), cosine, 0.0).backward()
    return a.grad


@pytest.mark.parametrize("program", [norms, a_dot_product, its_gradient, one_root])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN110"
    assert said == snapshot


@pytest.mark.parametrize("program", [cosine_similarity])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
