"""WN107 norm-without-eps: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_constant_row() -> object:
    return torch.nn.functional.layer_norm(torch.ones(1, 3), (3,), eps=0)


def a_constant_group() -> object:
    return torch.nn.functional.group_norm(torch.full((1, 4, 2), 3.0), 2, eps=0)


def an_epsilon_that_half_precision_cannot_hold() -> object:
    x = torch.full((1, 4), 5.0, dtype=torch.float16, requires_grad=True)
    torch.nn.functional.layer_norm(x, (4,), eps=1e-12).sum().backward()
    return x.grad


def with_the_default() -> object:
    return torch.nn.functional.layer_norm(torch.ones(1, 3), (3,))


@pytest.mark.parametrize("program", [a_constant_row, a_constant_group, an_epsilon_that_half_precision_cannot_hold])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN107"
    assert said == snapshot


@pytest.mark.parametrize("program", [with_the_default])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
