"""WN509 temperature-of-zero: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_number() -> object:
    return (torch.tensor([[1.0, 2.0]]) / 0.0).softmax(-1)


def a_tensor() -> object:
    logits, temperature = torch.tensor([[0.0, 2.0]]), torch.zeros(1)
    return torch.nn.functional.log_softmax(logits / temperature, dim=-1)


def too_small() -> object:
    return torch.softmax(torch.tensor([[1.0, 2.0]]) / 1e-39, dim=-1)


def of_a_cross_entropy() -> object:
    logits = torch.tensor([[1.0, 2.0]])
    return torch.nn.functional.cross_entropy(logits / torch.tensor(0.0), torch.tensor([1]))


def with_a_mask() -> object:
    scores = torch.tensor([[1.0, 2.0]]) / torch.tensor(0.0)
    return (scores + torch.tensor([[0.0, 1.0]])).softmax(-1)


def an_inverse_temperature() -> object:
    logits, temperature = torch.tensor([[1.0, 2.0]]), torch.tensor(0.0)
    return (logits * (1 / temperature)).softmax(-1)


def one_of_each_row() -> object:
    logits, temperature = torch.tensor([[1.0, 2.0], [1.0, 3.0]]), torch.tensor([[0.0], [1.0]])
    return (logits / temperature).softmax(-1)


def a_small_temperature() -> object:
    return (torch.tensor([[1.0, 2.0]]) / 1e-3).softmax(-1)


@pytest.mark.parametrize(
    "program", [a_number, a_tensor, too_small, of_a_cross_entropy, with_a_mask, an_inverse_temperature, one_of_each_row]
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN509"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_small_temperature])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def a_norm() -> object:
    x = torch.zeros(1, 2)
    return (x / x.norm()).softmax(-1)


def what_each_row_is_normalised_by() -> object:
    scores, mask = torch.ones(2, 3), torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    return (scores / mask.sum(-1, keepdim=True)).softmax(-1)


def without_a_softmax() -> object:
    return torch.tensor([[1.0, 2.0]]) / torch.tensor(0.0)


def a_vector() -> object:
    return (torch.tensor([[1.0, 2.0]]) / torch.tensor([[0.0, 1.0]])).softmax(-1)


def a_variance_of_one_sample() -> object:
    squares, count = torch.zeros(1, 2), 1
    return torch.nn.functional.linear(torch.tanh(squares / (count - 1)), torch.ones(2, 2)).softmax(-1)


@pytest.mark.parametrize(
    "program", [a_norm, what_each_row_is_normalised_by, without_a_softmax, a_vector, a_variance_of_one_sample]
)
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN509"
