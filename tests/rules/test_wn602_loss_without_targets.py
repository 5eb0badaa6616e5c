"""WN602 loss-without-targets: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn


def every_target_ignored() -> object:
    logits = torch.zeros(2, 3, requires_grad=True)
    loss = nn.functional.cross_entropy(logits, torch.full((2,), -100))
    loss.backward()
    return loss


def one_target() -> object:
    logits = torch.zeros(2, 3, requires_grad=True)
    loss = nn.functional.cross_entropy(logits, torch.tensor([-100, 1]))
    loss.backward()
    return loss


def a_class_without_samples() -> object:
    weights = torch.tensor([0.0, 0.0, float("nan")])
    return torch.nn.functional.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 1]), weight=weights)


def written_out() -> object:
    losses, labels = torch.ones(2), torch.full((2,), -100)
    there = labels != -100
    return (losses * there).sum() / there.sum()


@pytest.mark.parametrize("program", [every_target_ignored, written_out, a_class_without_samples])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN602"
    assert said == snapshot


@pytest.mark.parametrize("program", [one_target])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def words_that_are_all_padding() -> object:
    ids = torch.tensor([[0, 0, 0], [4, 7, 0]])
    mask = (ids != 0).float()[..., None]
    words = torch.ones(2, 3, 5)
    mean = (words * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.cross_entropy(mean, torch.tensor([1, 2]))


def test_a_mask_of_words_is_none_of_targets(first: Callable[..., dict[str, str]]) -> None:
    assert first(words_that_are_all_padding)["rule"] == "WN601"
