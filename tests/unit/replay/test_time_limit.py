"""What runs too long is ended, whatever the program catches; its own alarm goes on afterwards."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from whynan.replay import time_limit
from whynan.replay.time_limit import TimeLimit, obstacle


class Refused(BaseException):
    """What the limit raises."""


class Limited:
    """A limit around a body, and what it has refused."""

    def __init__(self, seconds: float = 0.05) -> None:
        self.refused: list[str] = []
        self.limit = TimeLimit(seconds, self.refuse)

    def refuse(self, what: str) -> None:
        self.refused.append(what)
        raise Refused(what)


def refusals(action: Callable[[], object], seconds: float = 0.05) -> set[str]:
    """What a program is refused, which would go on for ever, or wait; nothing of the limit stays."""
    before = signal.getsignal(signal.SIGALRM), sys.gettrace()
    limited = Limited(seconds)
    limited.limit.start()
    try:
        action()
    except Refused:
        pass
    finally:
        limited.limit.end()
    assert (signal.getsignal(signal.SIGALRM), sys.gettrace()) == before
    return {*limited.refused}


OVER = {"takes more than 0 seconds"}


def calls() -> None:
    while True:
        len("")


def goes_on() -> None:
    while True:
        pass


def sleeps() -> None:
    while True:
        time.sleep(10.0)


def waits() -> None:
    threading.Event().wait()


def enters_its_own_lock() -> None:
    lock = threading.Lock()
    with lock, lock:
        pass


@pytest.mark.parametrize("action", [calls, goes_on, sleeps, waits, enters_its_own_lock])
def test_what_never_ends_is_ended(action: Callable[[], object]) -> None:
    assert refusals(action) == OVER
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def once() -> None:
    len("")


def suppresses() -> None:
    while True:
        with suppress(BaseException):
            once()


def catches() -> None:
    while True:
        try:
            time.sleep(10.0)
        except:  # noqa: E722
            continue


def catches_further_out() -> None:
    while True:
        with suppress(BaseException):
            goes_on()


@pytest.mark.parametrize("action", [suppresses, catches, catches_further_out])
def test_what_catches_everything_is_ended(action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_GRACE", 0.02)
    assert refusals(action) == OVER


def test_what_a_program_does_as_it_ends_is_done() -> None:
    done: list[str] = []

    def ends() -> None:
        try:
            goes_on()
        finally:
            done.append("closed")

    assert refusals(ends) == OVER
    assert done == ["closed"]


def run_as(path: Path, source: str, **names: Any) -> None:
    """Run source as the code of a file."""
    exec(compile(source, str(path), "exec"), names)


def test_a_library_is_given_more_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(time_limit, "_LIBRARY_GRACE", 0.2)
    monkeypatch.setattr(time_limit, "_GRACE", 0.05)
    library, began = tmp_path / "site-packages" / "library.py", time.monotonic()
    assert refusals(lambda: run_as(library, "while True:\n    pass\n")) == OVER
    assert time.monotonic() - began > 0.25


class Pair(NamedTuple):
    one: int
    two: int


@pytest.mark.parametrize("action", ["pass", "made.append(Pair(1, 2))"])
def test_what_is_not_the_programs_is_not_ended(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_GRACE", 0.005)
    made: list[Pair] = []
    ours = Path(time_limit.__file__).with_name("something.py")
    source = f"until = monotonic() + 0.2\nwhile monotonic() < until:\n    {action}\n"
    assert not refusals(lambda: run_as(ours, source, Pair=Pair, made=made, monotonic=time.monotonic))


# -- the program's own alarm -------------------------------------------------------------------------------------------


@pytest.fixture
def alarms() -> Iterator[list[int]]:
    """The alarms that the program's own handler has been told of."""
    told: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: told.append(number))
    yield told
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_the_programs_timer_goes_on_with_what_was_left_of_it(alarms: list[int]) -> None:
    mine = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 30.0, 7.0)
    assert not refusals(lambda: time.sleep(0.2), 60.0)
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    assert 29.0 < left <= 29.8
    assert interval == 7.0
    assert signal.getsignal(signal.SIGALRM) is mine
    assert not alarms


def test_an_alarm_of_the_programs_comes_late_and_not_into_the_body(alarms: list[int]) -> None:
    seen: list[int] = []
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    assert not refusals(lambda: (time.sleep(0.1), seen.extend(alarms)), 60.0)
    time.sleep(0.1)
    assert (seen, alarms) == ([], [signal.SIGALRM])


def test_the_programs_trace_function_is_there_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_GRACE", 0.02)
    before, seen = sys.gettrace(), list[str]()

    def mine(_frame: object, event: str, _value: object) -> None:
        seen.append(event)

    sys.settrace(mine)
    try:
        assert refusals(suppresses) == OVER
        assert sys.gettrace() is mine
    finally:
        sys.settrace(before)
    assert "call" in seen


# -- where there is none -----------------------------------------------------------------------------------------------


def test_the_main_thread_can_be_ended_and_no_other() -> None:
    found: list[str | None] = []
    thread = threading.Thread(target=lambda: found.append(obstacle()))
    thread.start()
    thread.join()
    assert [*found, obstacle()] == ["could not be ended, as it runs outside of the main thread", None]


def test_a_handler_of_c_code_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    assert obstacle() == "could not be ended, as C code handles SIGALRM"


def test_a_system_without_a_timer_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "setitimer")
    assert obstacle() == "could not be ended on this system, which has no interval timer"
