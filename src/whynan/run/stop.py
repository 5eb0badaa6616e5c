"""Stopping a run from inside: an exception, a debugger at the user's line, a launcher's SIGTERM."""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Final, cast

from whynan.errors import NonFiniteError
from whynan.run.output.delivery import say
from whynan.source.ownership import Owner, owner_of

# -- How a run is ended from inside: an exception that programs let pass, or a debugger at the user's line -------------


def stop_exception() -> SystemExit:
    """What ends a program at its first bad number as ``sys.exit(1)`` would: handlers run, nothing is printed.

    In another thread than the main one it ends that thread; the main one is told to end too.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main and main.ident is not None:
        with suppress(Exception):
            import ctypes

            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main.ident), ctypes.py_object(SystemExit))
    stop = SystemExit(1)
    if (tasks := sys.modules.get("asyncio.log")) is not None:
        # a task that it ends beside the main one is logged, with its traceback, as one that has failed
        tasks.logger.addFilter(functools.partial(_is_of_another, id(stop)))
    return stop


def _is_of_another(stop: int, record: logging.LogRecord) -> bool:
    return record.exc_info is None or id(record.exc_info[1]) != stop


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code, seen from a frame."""
    while frame is not None and owner_of(frame.f_code.co_filename) is not Owner.USER:
        frame = frame.f_back
    return frame


def stepping_optimizer(frame: FrameType | None) -> Any:
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


# -- A program that its launcher tells to terminate (SIGTERM), and that leaves its report before it does ---------------
#
# One of several processes stands in a collective as a rule, where Python runs no handler: a thread is told as well.


_PATIENCE: Final = 1.0
"""Seconds after which the main thread runs no handler."""


def _set_handlers_aside() -> None:
    """Let no other signal run a handler of the program's, or of torch's, in the midst of the report.

    torch's raises as soon as a worker of a loader is terminated too. Without whynan the process would have ended. An
    interrupt stays one.
    """
    for number in signal.valid_signals() - {signal.SIGTERM, signal.SIGINT}:
        if callable(signal.getsignal(number)):
            signal.signal(number, _pass)


def _pass(number: int, frame: object) -> None:
    del number, frame


class Terminating:
    """Calls `report` at the first SIGTERM, and then ends the process by it, unless `report` says that it is to go on.

    Nothing is done where the program, or what has started it, handles the signal by itself.
    """

    def __init__(self, report: Callable[[], bool]) -> None:
        self._report = report
        self._met = threading.Event()
        self._one = threading.RLock()
        self._pipe: tuple[int, int] | None = None

    def begin(self) -> None:
        """Listen from here on; only the main thread can begin it."""
        if threading.current_thread() is not threading.main_thread() or os.name != "posix":
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        reader, writer = self._pipe = os.pipe()
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if before != -1:
            # an event loop's, which would miss what it waits for
            signal.set_wakeup_fd(before)
        signal.signal(signal.SIGTERM, self._handle)
        start_new_thread(self._listen, (reader,))

    def after_fork(self) -> None:
        """In a child of the program's, which ends by the signal as any process does."""
        if self._pipe is None:
            return
        with suppress(ValueError, OSError):
            if self._is_ours():
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            other = signal.set_wakeup_fd(-1)
            if other not in (-1, self._pipe[1]):
                signal.set_wakeup_fd(other)
        self._pipe = None

    def _is_ours(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._handle

    def _handle(self, number: int, frame: object) -> None:
        del number, frame
        self._met.set()
        _set_handlers_aside()
        self._end()

    def _listen(self, reader: int) -> None:
        """Wait in a thread for the number of the signal, which is written there wherever the main thread stands."""
        with suppress(OSError):
            while told := os.read(reader, 1):
                if told[0] == signal.SIGTERM and self._is_ours() and not self._met.wait(_PATIENCE):
                    self._end()

    def _end(self) -> None:
        # another thread waits here for the end of the process
        with self._one:
            if not self._report():
                return
            # by the system's own function: Python's can be called from the main thread alone
            import ctypes

            ctypes.CDLL(None).signal(signal.SIGTERM, None)
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                signal.pause()
