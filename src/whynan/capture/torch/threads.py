"""Threads that the program starts: each is entered as it begins and left as it ends, with no frame of ours below it."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from whynan.capture.torch.lanes import Lane
from whynan.capture.torch.mode import enter_below, leave
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.tracer import Tracer

# what a thread calls on itself, first and last (CPython 3.11 to 3.14)
_FIRST, _LAST = "_set_ident", "_delete"


def watch_threads(tracer: Tracer, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
    """Look at what threads compute that are started from now on; or note that they are not looked at."""
    if tracer.every_thread and all(hasattr(threading.Thread, name) for name in (_FIRST, _LAST)):
        replace(threading.Thread, _FIRST, functools.partial(_around, tracer, _enter, first=False))
        replace(threading.Thread, _LAST, functools.partial(_around, tracer, _leave, first=True))
    else:
        replace(threading.Thread, "start", functools.partial(_around, tracer, _note, first=True))


def _around(tracer: Tracer, act: Callable[[Tracer, Any], None], original: Any, *, first: bool) -> Any:
    @functools.wraps(original)
    def call(thread: threading.Thread, *args: Any) -> Any:
        result = None if first else original(thread, *args)
        try:
            if tracer.active:
                act(tracer, thread)
        except Exception:
            if tracer.fail():
                raise
        return original(thread, *args) if first else result

    return call


def _enter(tracer: Tracer, thread: Any) -> None:
    # a dummy stands for a thread that Python has not started, and is never left: one of the engine's has the mode as is
    if tracer.mode is None or tracer.only is not None or isinstance(thread, threading._DummyThread):
        return
    tracer.lock = tracer.lock or tracer.one_at_a_time
    # numbers of autograd nodes are the thread's own
    tracer.local.lane = Lane()
    tracer.bad.sinks.steps.enter_thread()
    enter_below(tracer.mode)
    tracer.entered[threading.get_ident()] = tracer.mode


def _leave(tracer: Tracer, _thread: Any) -> None:
    mode = tracer.entered.pop(threading.get_ident(), None)
    tracer.bad.sinks.steps.leave_thread()
    if mode is not None:
        leave(mode)


def _note(tracer: Tracer, thread: Any) -> None:
    here = threading.get_ident() == tracer.thread or threading.get_ident() in tracer.entered
    if here and not thread.daemon:
        tracer.notes[Note.of("thread_not_entered", thread=thread.name)] = None
