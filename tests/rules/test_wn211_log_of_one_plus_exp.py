"""WN211 log-of-one-plus-exp: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F


def a_function() -> object:
    return torch.log(1 + torch.exp(torch.tensor([100.0, 1.0])))


def log1p() -> object:
    return torch.tensor([100.0, 1.0]).exp().log1p()


def split_over_statements() -> object:
    e = torch.exp(torch.tensor([100.0, 1.0]))
    e += 1
    return torch.log2(e)


def in_half() -> object:
    return torch.tensor([12.0, 1.0]).half().exp().add(1).log()


def softplus() -> object:
    return F.softplus(torch.tensor([100.0, 1.0]))


def its_gradient() -> object:
    x = torch.tensor([100.0, 1.0], requires_grad=True)
    torch.where(x > 20, x, torch.log(1 + torch.exp(x))).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_function, log1p, split_over_statements, in_half, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN211"
    assert said == snapshot


@pytest.mark.parametrize("program", [softplus])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
