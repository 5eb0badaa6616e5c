"""A dataset of which some rows are bad, and what a trace says of the batches that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from tests.unit.capture.seen import only, traced
from whynan.records import Data

NAN = float("nan")
BAD = 5
"""The entry that is bad where there is one."""


class Rows(Dataset[Any]):
    """Eight rows of three numbers from NumPy, of which some hold a NaN in the second column."""

    def __init__(self, *bad: int, length: int = 8) -> None:
        self.table = np.ones((length, 3), dtype=np.float32)
        self.table[list(bad), 1] = NAN

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: Any) -> Any:
        return torch.from_numpy(self.table[index])


class Stream(IterableDataset[Any]):
    """The same rows one after the other; each worker has all of them."""

    def __init__(self, *bad: int) -> None:
        self.rows = Rows(*bad)

    def __iter__(self) -> Iterator[Any]:
        for i in range(len(self.rows)):
            yield self.rows[i]


def used(loader: Any, take: Any = lambda batch: batch, passes: int = 1) -> Any:
    """A program that computes with every batch."""

    def program() -> None:
        for _ in range(passes):
            for batch in loader:
                (take(batch) * 2).tolist()

    return program


def data_of(loader: Any, take: Any = lambda batch: batch, passes: int = 1) -> Data:
    finding = only(traced(used(loader, take, passes)))
    assert (finding.birth, finding.rule) == ("entered", "WN001")
    assert finding.data is not None
    return finding.data


def place(data: Data) -> tuple[Any, ...]:
    return data.batch, data.rows, data.n_rows, data.indices, data.worker
