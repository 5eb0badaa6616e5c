"""WN219 divergence-from-impossible: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F

TARGET = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
MASK = torch.tensor([[False, True], [False, False]])


def masked_logits() -> object:
    logits = torch.zeros(2, 2).masked_fill(MASK, -torch.inf)
    return F.kl_div(logits.log_softmax(-1), TARGET, reduction="batchmean")


def a_loss_module() -> object:
    log_q = torch.tensor([[0.0, -torch.inf], [-0.7, -0.7]])
    return torch.nn.KLDivLoss(reduction="batchmean")(log_q, TARGET)


def written_out() -> object:
    log_q = torch.tensor([[0.0, -torch.inf], [-0.7, -0.7]])
    entropy = torch.xlogy(TARGET, TARGET)
    return (entropy - TARGET * log_q).sum()


def a_finite_mask() -> object:
    logits = torch.zeros(2, 2).masked_fill(MASK, torch.finfo(torch.float32).min)
    return F.kl_div(logits.log_softmax(-1), TARGET, reduction="batchmean")


def an_impossible_target() -> object:
    return F.kl_div(torch.tensor([[-0.7, -0.7]]), torch.tensor([[1.0, 0.0]]), reduction="sum")


@pytest.mark.parametrize("program", [masked_logits, a_loss_module, written_out])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN219"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_finite_mask, an_impossible_target])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_a_weight_without_its_own_logarithm_is_left_to_others(first: Callable[..., dict[str, str]]) -> None:
    log_q = torch.tensor([[0.0, -torch.inf], [-0.7, -0.7]])
    assert first(lambda: (TARGET - TARGET * log_q).sum())["rule"] == "WN103"
