"""WN712 steep-gradient: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def beside_a_pole() -> None:
    x = torch.full((3,), 1e-24, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=1e-16)
    x.sqrt().sum().backward()
    optimizer.step()


def a_large_loss() -> None:
    model = torch.nn.Linear(4, 4)
    torch.nn.init.ones_(model.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    (model(torch.ones(2, 4)) * 1e12).sum().backward()
    optimizer.step()


def large() -> None:
    x = torch.full((3,), 1e-18, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=1e-16)
    x.sqrt().sum().backward()
    optimizer.step()


def clipped() -> None:
    x = torch.full((3,), 1e-24, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=1e-16)
    x.sqrt().sum().backward()
    torch.nn.utils.clip_grad_norm_([x], 1.0)
    optimizer.step()


def consumed_by_nobody() -> None:
    x = torch.full((3,), 1e-24, requires_grad=True)
    x.sqrt().sum().backward()
    x.grad = None


def scaled_back() -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("program", [beside_a_pole, a_large_loss])
def test_it_says_what_happened(
    program: Any, warned: Callable[..., dict[str, str]], snapshot: SnapshotAssertion
) -> None:
    said = warned(program)
    assert said["rule"] == "WN712"
    assert said == snapshot


@pytest.mark.parametrize("program", [large, clipped, consumed_by_nobody, scaled_back])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
