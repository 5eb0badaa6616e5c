"""Faults of whynan itself: one warning, the traceback in a file; exceptions of the program go through."""

from __future__ import annotations

import functools
import os
import signal
import sys
import tempfile
import traceback
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType, TracebackType


# -- What becomes of an error inside whynan: one warning, the traceback in a file, the user's run unharmed -------------


class InternalError(RuntimeError):
    """An error of whynan's own, raised only in its own tests."""


_told: list[bool] | None = None
"""In a program that is attended as a whole: whether an error has been told of."""


def tell_once() -> None:
    """From here on one warning is enough for the whole process, whatever else of whynan fails in it."""
    global _told
    _told = []


def report_internal_error() -> None:
    """Called while an exception is being handled; raises where our own tests ask for that."""
    if os.environ.get("WHYNAN_RAISE_INTERNAL") == "1":
        # no TypeError may leave a dispatch: torch's binary operators would take it for NotImplemented
        raise InternalError("whynan failed") from sys.exc_info()[1]
    if _told:
        return
    if _told is not None:
        _told.append(True)
    text = traceback.format_exc()
    try:
        descriptor, path = tempfile.mkstemp(prefix="whynan-", suffix=".traceback")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except Exception:  # or what the program has made of `os`
        path = "(the traceback could not be written)"
    kind = sys.exc_info()[0]
    what = (
        f"whynan met an error of its own ({kind.__name__ if kind else 'unknown'}) and is off for the rest of this "
        f"trace; your run goes on unharmed. Traceback: {path}"
    )
    warn(what)


def warn(what: str) -> None:
    """Warn of something that the program cannot be blamed for, and need not end for."""
    try:
        warnings.warn(what, RuntimeWarning, stacklevel=5)
    except RuntimeWarning:
        # where warnings are errors (-W error, pytest's filterwarnings) this one would take the run down
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.warn(what, RuntimeWarning, stacklevel=5)


# -- Exceptions of the program's own that arrive while whynan works: of a signal's handler, or sent to the thread ------


_ANYBODYS = sys.stdlib_module_names | {"builtins", "numpy", "torch", "whynan"}


def is_program_error() -> bool:
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
