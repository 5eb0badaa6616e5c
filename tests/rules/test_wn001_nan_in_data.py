"""WN001 nan-in-data: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS = np.array([[1.0, 2.0], [np.nan, 3.0]], dtype=np.float32)


def a_row_of_the_batch() -> object:
    return torch.from_numpy(ROWS).mean()


def a_weight() -> object:
    model = nn.Linear(2, 1)
    model.load_state_dict({"weight": torch.from_numpy(ROWS[1:]), "bias": torch.zeros(1)})
    return model(torch.ones(1, 2))


def one_value() -> object:
    return torch.from_numpy(ROWS[1, :1]).sum()


class Scaled(Dataset[torch.Tensor]):
    """Rows scaled in place by NumPy, each by its own maximum."""

    def __init__(self, *rows: list[float]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        row = np.array(self.rows[index], dtype=np.float32)
        with np.errstate(invalid="ignore"):
            return torch.from_numpy(row / row.max())


def _sum_of_batches(*rows: list[float]) -> object:
    return sum(batch.sum() for batch in DataLoader(Scaled(*rows), batch_size=4))


def a_sample_divided_by_its_maximum() -> object:
    return _sum_of_batches([1.0, 2.0], [0.0, 0.0], [3.0, 4.0])


def two_such_samples() -> object:
    return _sum_of_batches([0.0, 0.0], [1.0, 2.0], [0.0, 0.0])


def two_samples_of_a_worker() -> object:
    rows = Scaled([0.0, 0.0], [1.0, 2.0], [0.0, 0.0])
    return sum(batch.sum() for batch in DataLoader(rows, batch_size=4, num_workers=1))


def a_gap_in_a_sample() -> object:
    return _sum_of_batches([1.0, 2.0], [-np.inf, 1.0], [np.inf, 3.0])


def numbers() -> object:
    return torch.from_numpy(ROWS[:1]).mean()


def a_gap_that_is_left_out() -> object:
    data = torch.from_numpy(ROWS)
    return data[~data.isnan()].mean()


@pytest.mark.parametrize(
    "program",
    [
        a_row_of_the_batch,
        a_weight,
        one_value,
        a_sample_divided_by_its_maximum,
        two_such_samples,
        two_samples_of_a_worker,
        a_gap_in_a_sample,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN001"
    assert said == snapshot


@pytest.mark.parametrize("program", [numbers, a_gap_that_is_left_out])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
