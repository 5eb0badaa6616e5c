"""Threads that the program starts: each is entered as it begins and left as it ends, with no frame of ours below it."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.lanes import Lane

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
            tracer.fail()
        return original(thread, *args) if first else result

    return call


def _enter(tracer: Tracer, _thread: Any) -> None:
    if tracer.mode is None or tracer.only is not None:
        return
    if tracer.lock is None:
        tracer.lock = threading.RLock()
    # numbers of autograd nodes are the thread's own
    tracer.local.lane = Lane()
    tracer.entered[threading.get_ident()] = tracer.mode.__enter__()


def _leave(tracer: Tracer, _thread: Any) -> None:
    mode = tracer.entered.pop(threading.get_ident(), None)
    depth = torch._C._len_torch_dispatch_stack()
    if mode is not None and depth and torch._C._get_dispatch_stack_at(depth - 1) is mode:
        mode.__exit__(None, None, None)


def _note(tracer: Tracer, thread: Any) -> None:
    here = threading.get_ident() == tracer.thread or threading.get_ident() in tracer.entered
    if here and not thread.daemon:
        tracer.notes[f"thread {thread.name!r} was not entered: what it computed was not traced"] = None
