"""WN111 standardised-constant: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def std() -> object:
    x = torch.ones(4)
    return (x - x.mean()) / x.std()


def written_out() -> object:
    x = torch.ones(2, 4)
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.pow(2).mean(-1, keepdim=True)).rsqrt()


def padded() -> object:
    x = torch.ones(4)
    return (x - x.mean()) / (x.std() + 1e-6)


def its_gradient() -> object:
    x = torch.ones(3, requires_grad=True)
    ((x - x.mean()) / x.std()).nan_to_num(0.0).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [std, written_out, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN111"
    assert said == snapshot


@pytest.mark.parametrize("program", [padded])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
