"""What becomes of an error inside whynan: one warning, the traceback in a file, the user's run unharmed."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
import warnings


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
