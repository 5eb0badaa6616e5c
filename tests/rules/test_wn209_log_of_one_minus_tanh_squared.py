"""WN209 log-of-one-minus-tanh-squared: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F


def a_power() -> object:
    return torch.log(1 - torch.tanh(torch.tensor([12.0, 0.5])) ** 2)


def a_product() -> object:
    a = torch.tensor([12.0, 0.5]).tanh()
    return (1 - a * a).log()


def log1p() -> object:
    a = torch.tensor([-12.0, 0.5]).tanh()
    return torch.log1p(-a.square())


def stable() -> object:
    a = torch.tensor([12.0, 0.5])
    return 2 * (0.6931471805599453 - a - F.softplus(-2 * a))


@pytest.mark.parametrize("program", [a_power, a_product, log1p])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN209"
    assert said == snapshot


@pytest.mark.parametrize("program", [stable])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
