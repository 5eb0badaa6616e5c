"""Threads that the program starts: each is entered as it begins and left as it ends, with no frame of ours below it."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from whynan.capture.torch.dispatch_mode import enter_below, leave
from whynan.capture.torch.interposition.wrappers import call_fenced
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.context import TraceContext

# what a thread calls on itself, first and last (CPython 3.11 to 3.14)
_FIRST, _LAST = "_set_ident", "_delete"


def watch_threads(context: TraceContext, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
    """Look at what threads compute that are started from now on; or note that they are not looked at."""
    if context.every_thread and all(hasattr(threading.Thread, name) for name in (_FIRST, _LAST)):
        replace(threading.Thread, _FIRST, functools.partial(_around, context, _enter, first=False))
        replace(threading.Thread, _LAST, functools.partial(_around, context, _leave, first=True))
    else:
        replace(threading.Thread, "start", functools.partial(_around, context, _note, first=True))


def _around(context: TraceContext, act: Callable[[TraceContext, Any], None], original: Any, *, first: bool) -> Any:
    @functools.wraps(original)
    def call(thread: threading.Thread, *args: Any) -> Any:
        result = None if first else original(thread, *args)
        if context.active:
            call_fenced(context.fail, act, context, thread)
        return original(thread, *args) if first else result

    return call


def _enter(context: TraceContext, thread: Any) -> None:
    # a dummy stands for a thread that Python has not started, and is never left: one of the engine's has the mode as is
    if context.mode is None or context.narrowed or isinstance(thread, threading._DummyThread):
        return
    context.enter_thread()
    enter_below(context.mode)
    context.entered[threading.get_ident()] = context.mode


def _leave(context: TraceContext, _thread: Any) -> None:
    mode = context.entered.pop(threading.get_ident(), None)
    context.log.steps.leave_thread()
    if mode is not None:
        context.lane().end()
        leave(mode)


def _note(context: TraceContext, thread: Any) -> None:
    here = threading.get_ident() == context.thread or threading.get_ident() in context.entered
    if here and not thread.daemon:
        context.notes[Note.create("thread_not_entered", thread=thread.name)] = None
