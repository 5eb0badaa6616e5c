"""WN708 update-rounds-away: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def step(optimizer: Any, *, lr: float = 1e-5, dtype: torch.dtype = torch.bfloat16, steps: int = 1, **more: Any) -> None:
    model = torch.nn.Linear(4, 4).to(dtype)
    torch.nn.init.ones_(model.weight)
    torch.nn.init.constant_(model.bias, 0.5)
    made = optimizer(model.parameters(), lr=lr, **more)
    for _ in range(steps):
        made.zero_grad()
        model(torch.ones(2, 4, dtype=dtype)).sum().backward()
        made.step()


def sgd() -> None:
    step(torch.optim.SGD)


def momentum_of_all_at_once() -> None:
    step(torch.optim.SGD, momentum=0.9, foreach=True, steps=2)


def adam() -> None:
    step(torch.optim.Adam)


def adamw_of_all_at_once() -> None:
    step(torch.optim.AdamW, foreach=True)


def rmsprop() -> None:
    step(torch.optim.RMSprop)


def in_float16() -> None:
    step(torch.optim.SGD, dtype=torch.float16)


def a_single_parameter() -> None:
    w = torch.ones(8, dtype=torch.bfloat16, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1e-3)
    w.sum().backward()
    optimizer.step()


def at_a_rate_that_has_fallen_a_little() -> None:
    w = torch.ones(8, dtype=torch.bfloat16, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1e-3)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 0.75)
    w.sum().backward()
    optimizer.step()


def large_enough() -> None:
    step(torch.optim.SGD, lr=0.1)


def in_float32() -> None:
    step(torch.optim.SGD, dtype=torch.float32)


def a_rate_of_zero() -> None:
    step(torch.optim.SGD, lr=0.0)


def gradients_of_zero() -> None:
    w = torch.ones(8, dtype=torch.bfloat16, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1e-3)
    (w * 0).sum().backward()
    optimizer.step()


def in_a_warm_up() -> None:
    w = torch.ones(8, dtype=torch.bfloat16, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1e-3)
    w.sum().backward()
    optimizer.step()


def in_the_warm_up_of_a_cycle() -> None:
    w = torch.ones(8, dtype=torch.bfloat16, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.01)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=100, cycle_momentum=False)
    w.sum().backward()
    optimizer.step()


def one_element_moves() -> None:
    w = torch.ones(8, dtype=torch.bfloat16)
    w[3] = 1e-3
    w.requires_grad_()
    optimizer = torch.optim.SGD([w], lr=1e-3)
    w.sum().backward()
    optimizer.step()


def a_few_weights_beside_many() -> None:
    """The weights of a norm are 1, where the numbers are coarse; all others learn."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(4, 16).bfloat16()).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "program",
    [
        sgd,
        momentum_of_all_at_once,
        adam,
        adamw_of_all_at_once,
        rmsprop,
        in_float16,
        a_single_parameter,
        at_a_rate_that_has_fallen_a_little,
    ],
)
def test_it_says_what_happened(
    program: Any, warned: Callable[..., dict[str, str]], snapshot: SnapshotAssertion
) -> None:
    said = warned(program)
    assert said["rule"] == "WN708"
    assert said == snapshot


@pytest.mark.parametrize(
    "program",
    [
        large_enough,
        in_float32,
        a_rate_of_zero,
        gradients_of_zero,
        in_a_warm_up,
        in_the_warm_up_of_a_cycle,
        one_element_moves,
        a_few_weights_beside_many,
    ],
)
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
