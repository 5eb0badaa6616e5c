"""What ranks tell each other: who writes the report, who waits for whom, and what an earlier start leaves behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from whynan.capture.ranks import Rank
from whynan.run.ranks import channel
from whynan.run.ranks.channel import Channel, leave

Distributed: Any = dist
NEVER = 1000.0


@pytest.fixture
def store() -> Any:
    return Distributed.HashStore()


def posted(store: Any, number: int, world: int) -> Channel:
    """A rank that has handed in its report."""
    made = Channel(store, Rank(number, world))
    made.post({"of": number})
    return made


@contextmanager
def listening(store: Any, number: int, world: int) -> Iterator[Channel]:
    """A rank whose heart beats."""
    made = Channel(store, Rank(number, world))
    made.begin(lambda: None)
    yield made
    made.close()


def test_the_last_rank_to_end_has_the_reports_of_all_in_the_order_of_their_ends(store: Any) -> None:
    with listening(store, 0, 3):
        for number in (2, 1):
            assert posted(store, number, 3).collect(waits=False) is None
    assert [*(posted(store, 0, 3).collect(waits=False) or {}).items()] == [
        (2, {"of": 2}),
        (1, {"of": 1}),
        (0, {"of": 0}),
    ]


def test_a_rank_that_ends_does_not_wait_for_the_report_of_one_that_is_there(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_STALE", NEVER)
    with listening(store, 1, 2):
        assert posted(store, 0, 2).collect(waits=False) is None


def test_a_rank_that_ends_when_the_others_are_gone_writes(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_STALE", 0.2)
    # its heart has beaten, and it was killed
    with listening(store, 1, 3):
        assert posted(store, 2, 3).collect(waits=False) is None
    held = posted(store, 0, 3).collect(waits=False)
    assert held == {2: {"of": 2}, 0: {"of": 0}}


def test_of_several_that_think_that_they_are_left_alone_one_writes(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_STALE", 0.2)
    ranks = [posted(store, number, 3) for number in (0, 1)]
    assert [rank.collect(waits=False) is None for rank in ranks] == [False, True]


def test_a_rank_whose_end_would_end_the_others_waits_until_the_report_is_written(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_STALE", NEVER)
    stopped = posted(store, 0, 2)
    left: list[object] = []
    waiting = threading.Thread(target=lambda: left.append(stopped.collect(waits=True)))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    last = posted(store, 1, 2)
    assert last.collect(waits=True) is not None
    last.conclude()
    waiting.join(10)
    assert left == [None]


def test_where_the_one_that_writes_is_gone_another_does(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_HURRY", 0.2)
    waiting = posted(store, 0, 2)
    assert posted(store, 1, 2).collect(waits=True) is not None
    assert waiting.collect(waits=True) == {0: {"of": 0}, 1: {"of": 1}}


@pytest.mark.parametrize("others", [False, True], ids=["alone", "with another"])
def test_a_rank_that_is_terminated_alone_leaves_the_report_to_those_that_go_on(
    others: bool, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_HURRY", 0.2)
    with listening(store, 1, 2) as other:
        terminated = Channel(store, Rank(0, 2))
        terminated.hurry()
        if others:
            other.hurry()
        terminated.post({"of": 0})
        # one that is slow to make its own may come to nothing
        assert terminated.collect(waits=True) == ({0: {"of": 0}} if others else None)
    other.post({"of": 1})
    assert other.collect(waits=True) == {0: {"of": 0}, 1: {"of": 1}}


def test_an_alarm_is_heard_and_one_of_an_earlier_start_is_not(store: Any) -> None:
    environment = {"TORCHELASTIC_RUN_ID": "run"}
    start: Callable[[int], Any] = lambda number: Distributed.PrefixStore(
        channel._round_of(store, environment, Rank(number, 2)), store
    )  # pyright: ignore[reportPrivateUsage]
    first = start(0)
    with listening(start(1), 1, 2) as other:
        Channel(first, Rank(0, 2)).alarm()
        while not other.is_alarmed:
            threading.Event().wait(0.01)
    start(0)
    with listening(start(1), 1, 2) as other:
        # it has asked at least once when it is closed
        posted(store, 0, 2)
        threading.Event().wait(0.2)
        assert not other.is_alarmed


def test_a_child_that_is_forked_while_locks_are_held_runs_on(store: Any) -> None:
    made = Channel(store, Rank(0, 2))
    made.is_alarmed = True
    held = [made._closed._cond, made._one, made._heart]  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    for lock in held:
        lock.acquire()
    made.abandon_in_child()
    assert made.is_quiet
    assert made.take_over()
    made.close()


@pytest.mark.breadth
def test_what_a_process_has_written_is_there_when_it_leaves_though_a_stream_is_blocked(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        channel._FLUSH = 4.0  # pyright: ignore[reportPrivateUsage]
        kept = open(tmp_path / "log", "w")  # noqa: SIM115
        kept.write("kept")
        blocked = open(writer, "wb", buffering=1 << 20)  # noqa: SIM115
        blocked.write(bytes(1 << 19))
        leave(3)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    os.close(reader)
    assert os.waitstatus_to_exitcode(status) == 3
    assert (tmp_path / "log").read_text() == "kept"


def test_the_first_rank_that_has_found_something_tells_of_it_before_the_ranks_agree(store: Any) -> None:
    first, second, third = (Channel(store, Rank(number, 3)) for number in range(3))
    assert first.is_first_to_tell(found=False)
    assert not second.is_first_to_tell(found=False)
    # what is found takes the place of an end, and what more is known of it that of itself
    assert second.is_first_to_tell(found=True)
    assert not third.is_first_to_tell(found=True)
    assert second.is_first_to_tell(found=True)
    third.conclude()
    assert not second.is_first_to_tell(found=True)
