"""WN801 optimizer-eps-zero: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn


def adam() -> object:
    weight = nn.Parameter(torch.ones(2))
    adam = torch.optim.Adam([weight], eps=0.0)
    (weight * torch.tensor([0.0, 1.0])).sum().backward()
    adam.step()
    return weight.detach()


def adam_in_one_kernel() -> object:
    weight = nn.Parameter(torch.ones(2))
    adam = torch.optim.Adam([weight], eps=0.0, fused=True)
    (weight * torch.tensor([0.0, 1.0])).sum().backward()
    adam.step()
    return weight.detach()


def an_eps() -> object:
    weight = nn.Parameter(torch.ones(2))
    adam = torch.optim.Adam([weight])
    (weight * torch.tensor([0.0, 1.0])).sum().backward()
    adam.step()
    return weight.detach()


@pytest.mark.parametrize("program", [adam, adam_in_one_kernel])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN801"
    assert said == snapshot


@pytest.mark.parametrize("program", [an_eps])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
