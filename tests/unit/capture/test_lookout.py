"""What a replay catches of a refusal does not free it: the next call is looked at too, and its time ends."""

from __future__ import annotations

import itertools
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from whynan.capture.outside import Outside, held_back

CAUGHT = 5


def clauses(action: Callable[[], object], seconds: float = 60.0) -> list[str]:
    """What a replay was refused, in order."""
    trace = sys.gettrace()
    with held_back(seconds) as held, suppress(Outside):
        action()
    assert sys.getprofile() is None
    assert sys.gettrace() is trace
    return [r.what for r in held.refused]


def test_what_is_put_into_a_queue_after_a_refusal_is_refused_too() -> None:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()

    def ends() -> None:
        try:
            waiting.get(timeout=0)
        finally:
            waiting.put(0)

    assert clauses(ends) == ["takes from a queue", "puts into a queue"]
    assert waiting.empty()


def test_a_loop_that_catches_everything_is_refused_each_time() -> None:
    waiting: queue.Queue[int] = queue.Queue()
    waiting.put(1)

    def tries() -> None:
        for _ in range(CAUGHT):
            try:
                waiting.get()
            except BaseException:
                continue

    assert clauses(tries) == ["takes from a queue"] * CAUGHT
    assert waiting.qsize() == 1


def test_an_endless_loop_is_ended() -> None:
    def goes_on() -> None:
        while True:
            len("")

    assert clauses(goes_on, 0.0) == ["takes more than 0 seconds"]


def test_an_endless_loop_that_catches_everything_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whynan.capture.lookout._GRACE", 0.0)

    def once() -> None:
        len("")

    def goes_on() -> None:
        while True:
            with suppress(BaseException):
                once()

    assert set(clauses(goes_on, 0.0)) == {"takes more than 0 seconds"}


def test_what_a_program_does_as_its_time_is_over_has_some_more(monkeypatch: pytest.MonkeyPatch) -> None:
    # a second for each event
    monkeypatch.setattr("whynan.capture.lookout.monotonic", itertools.count().__next__)
    monkeypatch.setattr("whynan.capture.lookout._GRACE", 100.0)
    done: list[str] = []

    def ends() -> None:
        try:
            while True:
                len("")
        finally:
            done.append("".upper())

    assert clauses(ends, 1000.0) == ["takes more than 1,000 seconds"]
    assert done == [""]


def test_a_loop_that_only_sleeps_is_ended() -> None:
    done = threading.Event()

    def waits() -> None:
        while not done.is_set():
            time.sleep(1.0)

    assert clauses(waits, 0.0) == ["takes more than 0 seconds"]


def test_a_library_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("whynan.capture.lookout._OF_OTHERS", 0.0)
    names: dict[str, Any] = {"time": time}
    source = "def waits():\n    while True:\n        time.sleep(1.0)\n"
    exec(compile(source, str(tmp_path / "site-packages" / "library.py"), "exec"), names)
    assert clauses(names["waits"], 0.0) == ["takes more than 0 seconds"]


def test_what_makes_a_named_tuple_is_not_ended_in_it() -> None:
    class Pair(NamedTuple):
        one: int
        two: int

    made: list[Pair] = []
    # of no program: it may be putting something back
    names: dict[str, Any] = {"Pair": Pair, "made": made}
    source = "def makes():\n    made.append(Pair(1, 2))\n"
    exec(compile(source, "<frozen x>", "exec"), names)
    assert clauses(names["makes"], 0.0) == []
    assert made == [(1, 2)]


def test_what_is_put_back_has_all_the_time() -> None:
    done: list[str] = []
    with held_back(0.0) as held:
        held.ending = True
        done.append("".upper())
        (lambda: done.append("".upper()))()
    assert (held.refused, done) == ([], ["", ""])


def test_what_comes_after_a_recursion_that_is_too_deep_is_looked_at() -> None:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    waiting.put(1)

    def deeper(depth: int) -> int:
        return deeper(depth + 1)

    def takes() -> None:
        with suppress(RecursionError):
            deeper(0)
        waiting.get()

    assert clauses(takes)[-1] == "takes from a queue"
    assert waiting.qsize() == 1


def test_a_profile_function_is_not_put_in_the_place_of_ours() -> None:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    waiting.put(1)

    def takes() -> None:
        sys.setprofile(None)
        waiting.get()

    assert clauses(takes) == ["sets a profile function"]
    assert waiting.qsize() == 1


@pytest.mark.parametrize(
    "action",
    [
        lambda: signal.alarm(0),
        lambda: signal.setitimer(signal.ITIMER_REAL, 0),
        lambda: signal.signal(signal.SIGALRM, signal.SIG_IGN),
    ],
    ids=["alarm", "setitimer", "signal"],
)
def test_the_programs_timers_and_handlers_stay(action: Callable[[], object]) -> None:
    before = signal.getsignal(signal.SIGALRM)
    assert clauses(action) == ["sets a timer or what a signal does"]
    assert signal.getsignal(signal.SIGALRM) is before


def test_the_programs_own_trace_function_is_there_afterwards() -> None:
    before = sys.gettrace()
    seen: list[str] = []

    def mine(_frame: object, event: str, _arg: object) -> None:
        seen.append(event)

    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    sys.settrace(mine)
    try:
        clauses(lambda: waiting.get(timeout=0))
        assert sys.gettrace() is mine
    finally:
        sys.settrace(before)
    assert "call" in seen


# -- where no call is seen ---------------------------------------------------------------------------------------------


def test_a_loop_without_a_call_is_ended() -> None:
    def goes_on() -> None:
        while True:
            pass

    assert set(clauses(goes_on, 0.0)) == {"takes more than 0 seconds"}


def test_a_lock_that_the_program_itself_holds_is_not_waited_for() -> None:
    lock = threading.Lock()

    def enters() -> None:
        with lock:
            pass

    with lock:
        assert clauses(enters) == ["waits for a lock that is held"]
        assert clauses(lock.acquire) == ["waits for a lock that is held"]
    assert not lock.locked()


def test_a_lock_that_is_free_is_taken_and_let_go() -> None:
    lock, again = threading.Lock(), threading.RLock()

    def enters() -> None:
        with lock, again:
            pass

    with again:
        assert clauses(enters) == []
    assert not lock.locked()


def test_the_signal_that_wakes_is_nobodys_afterwards() -> None:
    before = [signal.getsignal(n) for n in range(1, int(signal.SIGRTMAX) + 1)]
    threads = threading.active_count()
    with held_back():
        assert [signal.getsignal(n) for n in range(1, int(signal.SIGRTMAX) + 1)] != before
        assert threading.active_count() == threads
    assert [signal.getsignal(n) for n in range(1, int(signal.SIGRTMAX) + 1)] == before
