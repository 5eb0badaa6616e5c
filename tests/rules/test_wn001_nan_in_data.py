"""WN001 nan-in-data: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn

ROWS = np.array([[1.0, 2.0], [np.nan, 3.0]], dtype=np.float32)


def a_row_of_the_batch() -> object:
    return torch.from_numpy(ROWS).mean()


def a_weight() -> object:
    model = nn.Linear(2, 1)
    model.load_state_dict({"weight": torch.from_numpy(ROWS[1:]), "bias": torch.zeros(1)})
    return model(torch.ones(1, 2))


def one_value() -> object:
    return torch.from_numpy(ROWS[1, :1]).sum()


def numbers() -> object:
    return torch.from_numpy(ROWS[:1]).mean()


def a_gap_that_is_left_out() -> object:
    data = torch.from_numpy(ROWS)
    return data[~data.isnan()].mean()


@pytest.mark.parametrize("program", [a_row_of_the_batch, a_weight, one_value])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN001"
    assert said == snapshot


@pytest.mark.parametrize("program", [numbers, a_gap_that_is_left_out])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
