"""How a run is ended from inside: an exception that programs let pass, or a debugger at the user's line."""

# pyright: strict

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from whynan.errors import NonFiniteError
from whynan.session.delivery import say
from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType


def stopped() -> SystemExit:
    """What ends a program at its first bad number as ``sys.exit(1)`` would: handlers run, nothing is printed.

    In another thread than the main one it ends that thread; the main one is told to end too.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main and main.ident is not None:
        with suppress(Exception):
            import ctypes

            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main.ident), ctypes.py_object(SystemExit))
    return SystemExit(1)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code, seen from a frame."""
    while frame is not None and owner_of(frame.f_code.co_filename) is not Owner.USER:
        frame = frame.f_back
    return frame


def stepping(frame: FrameType | None) -> Any:
    """The optimizer whose step is being called, seen from a frame in it; None where none is."""
    from torch.optim import Optimizer

    while frame is not None and owner_of(frame.f_code.co_filename) is not Owner.USER:
        for value in frame.f_locals.values():
            if isinstance(value, Optimizer):
                return value
        frame = frame.f_back
    return None


def debugger(frame: FrameType) -> Callable[[], None]:
    """What opens Python's debugger at a frame; it comes back when the user continues or quits."""
    import pdb

    made = pdb.Pdb()

    def open_it() -> None:
        made.reset()
        try:
            made.interaction(frame, None)
        except Exception as error:
            say(f"the debugger has ended ({error!r})")

    return open_it


def hide(error: BaseException) -> None:
    """Take whynan's frames out of the tracebacks that Python shows; its own exception stands at the user's line."""
    known: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in known:
            continue
        known.add(id(one))
        _hide(one)
        waiting += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", one).exceptions


def _hide(error: BaseException) -> None:
    frames: list[TracebackType] = []
    step = error.__traceback__
    while step is not None:
        frames.append(step)
        step = step.tb_next
    kept = [t for t in frames if _owner(t) is not Owner.WHYNAN]
    if isinstance(error, NonFiniteError):
        last = max((i for i, t in enumerate(kept) if _owner(t) is Owner.USER), default=len(kept) - 1)
        kept = kept[: last + 1]
    if not kept:
        return
    for before, after in zip(kept, [*kept[1:], None], strict=True):
        before.tb_next = after
    error.__traceback__ = kept[0]


def _owner(traceback: TracebackType) -> Owner:
    return owner_of(traceback.tb_frame.f_code.co_filename)
