"""Exceptions of the program's own that arrive while whynan works: of a signal's handler, or sent to the thread."""

# pyright: strict

from __future__ import annotations

import functools
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType, TracebackType

_ANYBODYS = sys.stdlib_module_names | {"builtins", "numpy", "torch", "whynan"}


def theirs() -> bool:
    """Whether the exception that is being handled is the program's, and no failure of what ran as it came.

    Python calls the handlers of signals wherever the main thread is: a time limit of the program's raises from among
    our own frames. Its traceback begins at the handler then, and it is to be raised again.
    """
    error = sys.exc_info()[1]
    if error is None:
        return False
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    last = traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return _begun_at(traceback, error)
        last, traceback = traceback, traceback.tb_next
    # PyThreadState_SetAsyncExc, by which libraries end what takes too long: no frame of theirs raises it
    of_their_kind = type(error).__module__.partition(".")[0] not in _ANYBODYS
    return of_their_kind and last is not None and _is_ours(last) and _begun_at(None, error)


def _code(handler: Any) -> CodeType | None:
    """The code of a signal's handler; None where it is not Python's."""
    try:
        while isinstance(handler, functools.partial):
            handler = handler.func
        return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    except Exception:
        return None


def _is_ours(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "whynan"


def _begun_at(traceback: TracebackType | None, error: BaseException) -> bool:
    BaseException.with_traceback(error, traceback)
    return True
