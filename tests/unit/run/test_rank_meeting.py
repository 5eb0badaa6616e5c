"""What ranks make of a step that is bad on one of them, and what they do where the others do not come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch.distributed as dist

from whynan.capture.ranks import Rank
from whynan.run.ranks import meeting
from whynan.run.ranks.channel import Channel
from whynan.run.ranks.meeting import Meeting

Distributed: Any = dist


@pytest.fixture
def store() -> Any:
    return Distributed.HashStore()


def ranks(store: Any, world: int) -> list[Meeting]:
    """The part of each rank, all of this process."""
    made = [Channel(store, Rank(number, world)) for number in range(world)]
    return [Meeting(channel, channel.connect) for channel in made]


def at_once(*calls: Callable[[], bool]) -> list[bool]:
    """What several give that wait for each other."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [made.result(20) for made in [pool.submit(call) for call in calls]]


def test_a_step_is_bad_on_all_ranks_where_it_is_bad_on_one(store: Any) -> None:
    met = ranks(store, 4)
    for bad in ((), (2,), (), (0, 3)):
        decided = at_once(*(partial(one.is_bad, here=number in bad) for number, one in enumerate(met)))
        assert decided == [bool(bad)] * 4
    # what is over does not pile up
    assert store.num_keys() <= 4


def test_a_rank_that_has_ended_is_not_waited_for(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_SLICE", 0.05)
    first, second, third = ranks(store, 3)
    Channel(store, Rank(2, 3)).post({})
    assert at_once(lambda: first.is_bad(here=False), lambda: second.is_bad(here=True)) == [True, True]
    assert (first.parted, second.parted, third.parted) == (0, 0, 0)


def test_ranks_that_do_not_come_leave_each_to_itself(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_SLICE", 0.05)
    monkeypatch.setattr(meeting, "_STILL", 0.2)
    first, second = ranks(store, 2)
    assert not first.is_bad(here=False)
    assert (first.parted, first.is_bad(here=True)) == (1, True)
    # the other comes later, and hears of it at a step that nobody comes to
    assert not second.is_bad(here=False)
    assert second.is_bad(here=True)
    assert second.parted == 2


def test_ranks_that_move_are_waited_for(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_SLICE", 0.05)
    monkeypatch.setattr(meeting, "_STILL", 0.5)
    first, second = ranks(store, 2)

    def late() -> bool:
        for _ in range(10):
            threading.Event().wait(0.1)
            store.add("moves", 1)
        return second.is_bad(here=True)

    assert at_once(lambda: first.is_bad(here=False), late) == [True, True]
    assert first.parted == 0
