"""A traced step is rewound for a proof: weights, gradients and state are as before it, and afterwards as after it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from whynan.capture.torch.sinks.gradients import Losses
from whynan.training import step_checkpoint
from whynan.training.step_checkpoint import StepCheckpoint


def trained(kind: Any, **options: Any) -> tuple[list[nn.Parameter], Any]:
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(2, 2))]
    optimizer = kind(weights, lr=0.1, **options)
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return weights, optimizer


def held(weights: list[nn.Parameter], optimizer: Any) -> list[Any]:
    """All that a step may change, as bits."""
    state = [
        (k, v.clone() if isinstance(v, torch.Tensor) else v) for w in weights for k, v in optimizer.state[w].items()
    ]
    return [*(w.detach().clone() for w in weights), *(w.grad.clone() for w in weights if w.grad is not None), *state]


def same(one: list[Any], other: list[Any]) -> bool:
    flat = [[x for part in side for x in (part if isinstance(part, tuple) else (part,))] for side in (one, other)]
    return len(flat[0]) == len(flat[1]) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(*flat, strict=True)
    )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"foreach": True, "amsgrad": True}),
        (torch.optim.Adafactor, {}),
    ],
)
@pytest.mark.parametrize("steps_before", [0, 1])
def test_a_step_is_rewound_and_made_again(kind: Any, options: dict[str, Any], steps_before: int) -> None:
    weights, optimizer = trained(kind, **options)
    for _ in range(steps_before):
        optimizer.step()
    before = held(weights, optimizer) if steps_before else [w.detach().clone() for w in weights]
    checkpoint = StepCheckpoint.take(optimizer, 1, Losses())
    assert checkpoint is not None
    optimizer.step()
    after, objects = held(weights, optimizer), [id(v) for w in weights for v in optimizer.state[w].values()]
    with checkpoint.rewound() as fault:
        assert fault is not None
        assert fault.made
        if steps_before:
            assert same(held(weights, optimizer), before)
        else:
            assert not optimizer.state
            assert same([w.detach().clone() for w in weights], before)
        optimizer.step()
        assert same(held(weights, optimizer), after)
    assert same(held(weights, optimizer), after)
    assert [id(v) for w in weights for v in optimizer.state[w].values()] == objects


def test_a_step_with_a_closure_is_made_of_what_the_closure_has_left_first() -> None:
    weights, optimizer = trained(torch.optim.SGD)
    checkpoint = StepCheckpoint.take(optimizer, 1, Losses())
    assert checkpoint is not None
    for bad in (weights[0], weights[1]):
        optimizer.zero_grad()
        bad.grad = torch.full_like(bad, torch.nan)
        checkpoint.evaluate(Losses())
    with torch.no_grad():
        weights[0].add_(1.0)
    with checkpoint.rewound() as fault:
        assert fault is not None
        assert [parameter is weights[0] for parameter, _ in fault.judged.bad] == [True]


def test_a_step_that_is_not_made_yet_is_none() -> None:
    _, optimizer = trained(torch.optim.SGD)
    checkpoint = StepCheckpoint.take(optimizer, 1, Losses())
    assert checkpoint is not None
    with checkpoint.rewound() as fault:
        assert fault is None


def test_no_more_is_copied_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, optimizer = trained(torch.optim.Adam)
    monkeypatch.setattr(step_checkpoint, "LIMIT", 20)
    assert StepCheckpoint.take(optimizer, 1, Losses()) is None
    monkeypatch.setattr(step_checkpoint, "LIMIT", 60)
    checkpoint = StepCheckpoint.take(optimizer, 1, Losses())
    assert checkpoint is not None
    optimizer.step()
    after = held(weights, optimizer)
    with checkpoint.rewound() as fault:
        assert fault is None
    assert same(held(weights, optimizer), after)
