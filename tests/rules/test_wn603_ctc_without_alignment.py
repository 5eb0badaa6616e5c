"""WN603 ctc-without-alignment: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn


def a_target_longer_than_the_input() -> object:
    log_probs = torch.zeros(3, 1, 4).log_softmax(-1)
    target, steps, symbols = torch.tensor([[1, 1, 1]]), torch.tensor([3]), torch.tensor([3])
    return nn.functional.ctc_loss(log_probs, target, steps, symbols)


def one_of_a_batch() -> object:
    log_probs = torch.zeros(5, 3, 4).log_softmax(-1)
    targets, steps, symbols = torch.tensor([[1, 2, 3]] * 3), torch.tensor([5, 2, 5]), torch.tensor([3, 3, 2])
    return nn.functional.ctc_loss(log_probs, targets, steps, symbols)


def zero_infinity() -> object:
    log_probs = torch.zeros(3, 1, 4).log_softmax(-1)
    target, steps, symbols = torch.tensor([[1, 1, 1]]), torch.tensor([3]), torch.tensor([3])
    return nn.functional.ctc_loss(log_probs, target, steps, symbols, zero_infinity=True)


def the_gradient_where_a_symbol_is_impossible() -> object:
    log_probs = torch.tensor([[[0.0, -torch.inf, -2.0]]] * 4).log_softmax(-1).requires_grad_()
    target, steps, symbols = torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2])
    nn.functional.ctc_loss(log_probs, target, steps, symbols).backward()
    return log_probs.grad


@pytest.mark.parametrize(
    "program", [a_target_longer_than_the_input, one_of_a_batch, the_gradient_where_a_symbol_is_impossible]
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN603"
    assert said == snapshot


@pytest.mark.parametrize("program", [zero_infinity])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
