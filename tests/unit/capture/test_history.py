"""When the steps of a training are told of."""

from __future__ import annotations

from typing import Any

import torch

from whynan.capture.torch.history import KEPT, Entry, History

OPTIMIZER = torch.optim.SGD([torch.ones(1)], lr=0.1)


def _on_a_device() -> Any:
    """Two norms that cannot be read without waiting for a device."""
    return torch.ones((), device="meta"), torch.ones((), device="meta")


def test_a_step_that_a_device_is_still_at_is_told_of_at_the_next_one() -> None:
    told: list[Entry] = []
    history = History(told.append)
    first = history.note(OPTIMIZER, 1, None, 1.0, None)
    first.moved = _on_a_device()
    history.tell(waits=False)
    assert told == []
    second = history.note(OPTIMIZER, 2, None, 1.0, None)
    assert told == [first]
    second.moved = torch.tensor(1.0), torch.tensor(4.0)
    history.tell(waits=False)
    assert told == [first, second]
    assert second.update_ratio == 0.25


def test_the_last_step_is_told_of_at_the_end() -> None:
    told: list[Entry] = []
    history = History(told.append)
    last = history.note(OPTIMIZER, 1, None, 1.0, None)
    last.moved = _on_a_device()
    history.tell()
    history.tell()
    assert told == [last]


def test_where_nobody_is_told_nothing_waits_to_be() -> None:
    history = History()
    for step in range(KEPT + 10):
        history.note(OPTIMIZER, step, None, 1.0, None)
    history.tell()
    assert len(history.of(OPTIMIZER)) == KEPT
    assert len(history._untold) == 0
