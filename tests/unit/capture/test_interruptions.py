"""An exception of the program's own that comes while whynan works is the program's."""

from __future__ import annotations

import ctypes
import functools
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import whynan
from whynan.capture.torch import tracer
from whynan.capture.torch.tracer import Tracer
from whynan.faults import InternalError
from whynan.traces.format import FAILED


class OutOfTimeError(Exception):
    """The program's."""


def ring(number: int, frame: Any) -> None:
    raise OutOfTimeError("that is enough")


class Clock:
    """Rings in the ways in which a handler can be written."""

    def __call__(self, number: int, frame: Any) -> None:
        ring(number, frame)

    def method(self, number: int, frame: Any) -> None:
        ring(number, frame)


HANDLERS: dict[str, Any] = {
    "a function": ring,
    "a lambda": lambda number, frame: ring(number, frame),
    "a method": Clock().method,
    "an object": Clock(),
    "a partial": functools.partial(ring),
}


@pytest.fixture
def at_the_third(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Have something happen while the third operation is looked at."""
    before = signal.getsignal(signal.SIGUSR1)

    def plant(happen: Callable[[], object]) -> None:
        looked, seen = Tracer.record_event, [0]

        def after(*args: Any) -> None:
            seen[0] += 1
            if seen[0] == 3:
                happen()
            looked(*args)

        monkeypatch.setattr(Tracer, "record_event", after)

    yield plant
    signal.signal(signal.SIGUSR1, before)


def _program() -> str:
    """What the program is told of its time limit; what follows is bad."""
    x = torch.ones(2)
    said = "nothing"
    try:
        for _ in range(8):
            x = x * 2
    except OutOfTimeError as error:
        said = "".join(traceback.format_exception(error))
    (-x).sqrt().tolist()
    return said


@pytest.mark.parametrize("name", HANDLERS)
def test_what_a_signals_handler_raises_goes_to_the_program(name: str, at_the_third: Any) -> None:
    signal.signal(signal.SIGUSR1, HANDLERS[name])
    at_the_third(lambda: signal.raise_signal(signal.SIGUSR1))
    with whynan.trace() as t:
        said = _program()
    assert "OutOfTimeError: that is enough" in said
    assert "whynan/" not in said
    # and whynan looks on
    assert [f.birth for f in t.report.findings] == ["invalid"]
    assert FAILED not in t.report.coverage.typed_notes


def test_what_is_sent_to_the_thread_goes_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, number = ctypes.py_object(OutOfTimeError), ctypes.c_ulong(threading.get_ident())
    send = functools.partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, number, sent)
    x = torch.ones(2)
    with whynan.trace() as t:
        with monkeypatch.context() as patch:
            # called from a frame of ours, and none of anybody else's comes in between
            patch.setattr(tracer, "_current_node", send)
            with pytest.raises(OutOfTimeError) as raised:
                x * 2
        assert "whynan/" not in "".join(traceback.format_exception(raised.value))
        (-x).sqrt().tolist()
    assert [f.birth for f in t.report.findings] == ["invalid"]


def test_what_fails_of_itself_stays_ours(at_the_third: Any) -> None:
    def fails() -> None:
        raise OutOfTimeError("by what was asked, and by no handler")

    signal.signal(signal.SIGUSR1, ring)
    at_the_third(fails)
    with pytest.raises(InternalError), whynan.trace():
        _program()
