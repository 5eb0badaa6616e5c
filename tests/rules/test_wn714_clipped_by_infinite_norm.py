"""WN714 clipped-by-infinite-norm: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def gradients(scale: float, dtype: torch.dtype = torch.float16) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, 4).to(dtype)
    (model(torch.ones(2, 4, dtype=dtype)).sum() * scale).backward()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def clipped() -> None:
    model, optimizer = gradients(20000.0)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def one_after_the_other() -> None:
    model, optimizer = gradients(20000.0)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
    optimizer.step()


def by_hand() -> None:
    model, optimizer = gradients(20000.0)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for p in model.parameters():
        p.grad.mul_(1 / norm)
    optimizer.step()


def small_enough() -> None:
    model, optimizer = gradients(100.0)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def in_float32() -> None:
    model, optimizer = gradients(20000.0, torch.float32)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def nothing_to_clip() -> None:
    model, optimizer = gradients(0.0)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def frozen_on_purpose() -> None:
    model, optimizer = gradients(1.0)
    for p in model.parameters():
        p.grad.mul_(0.0)
    optimizer.step()


@pytest.mark.parametrize("program", [clipped, one_after_the_other, by_hand])
def test_it_says_what_happened(
    program: Any, warned: Callable[..., dict[str, str]], snapshot: SnapshotAssertion
) -> None:
    said = warned(program)
    assert said["rule"] == "WN714"
    assert said == snapshot


@pytest.mark.parametrize("program", [small_enough, in_float32, nothing_to_clip, frozen_on_purpose])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
