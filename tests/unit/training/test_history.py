"""When the steps of a training are told of."""

from __future__ import annotations

import torch

from whynan.training.listeners import KEPT, Entry, History

OPTIMIZER = torch.optim.SGD([torch.ones(1)], lr=0.1)


def test_each_step_is_told_of_once() -> None:
    told: list[Entry] = []
    history = History(told.append)
    for step in (1, 2):
        history.note(OPTIMIZER, step, None, 1.0, None)
    assert told == []
    history.publish()
    history.publish()
    assert [entry.step for entry in told] == [1, 2]
    history.note(OPTIMIZER, 3, None, 1.0, None)
    history.publish()
    assert [entry.step for entry in told] == [1, 2, 3]


def test_where_nobody_is_told_nothing_waits_to_be() -> None:
    history = History()
    for step in range(KEPT + 10):
        history.note(OPTIMIZER, step, None, 1.0, None)
    history.publish()
    assert len(history.steps_of(OPTIMIZER)) == KEPT
    assert len(history._untold) == 0


def test_an_optimizer_at_the_address_of_another_has_no_steps_of_that() -> None:
    history = History()
    for step in (1, 2, 3, 1, 2):
        history.note(OPTIMIZER, step, None, float(step), None)
    assert [entry.step for entry in history.steps_of(OPTIMIZER)] == [1, 2]
