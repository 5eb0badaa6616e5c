"""Processes that end with their parent, however that ends."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_DEATH_SIGNAL: Final = 1
"""``PR_SET_PDEATHSIG`` of Linux's prctl."""


def binding() -> Callable[[], object]:
    """What a process calls that has just begun, so that whoever kills its parent kills it too; nothing where not Linux.

    All that it needs is found here: nothing is loaded after a fork.
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except Exception:
        return _nothing
    return lambda: prctl(_DEATH_SIGNAL, signal.SIGKILL)


def _nothing() -> None:
    return
