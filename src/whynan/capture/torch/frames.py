"""Tracebacks without whynan: an exception of the user's passes our doors as if they were not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from whynan.capture.failure import report_internal_error
from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from types import CodeType, TracebackType

# below a mode an operation is called from Python; bare, it is not
_CALLED_BY_US: frozenset[CodeType] = frozenset((torch._ops.OpOverload.__call__.__code__,))


def _own(traceback: TracebackType) -> bool:
    code = traceback.tb_frame.f_code
    return code in _CALLED_BY_US or owner_of(code.co_filename) is Owner.WHYNAN


def unseen(error: BaseException) -> None:
    """Take our frames off the head of an exception's traceback; to be followed by a bare ``raise``.

    A bare ``raise`` puts no new entry for the frame that it stands in.
    """
    try:
        if torch.compiler.is_compiling():
            return
        traceback = error.__traceback__
        while traceback is not None and _own(traceback):
            traceback = traceback.tb_next
        if traceback is not error.__traceback__:
            # below a `__setattr__` that the exception may have: that of a frozen dataclass refuses
            BaseException.with_traceback(error, traceback)
    except Exception:
        # the exception is the program's, and goes on as it is
        report_internal_error()
