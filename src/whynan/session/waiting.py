"""A line on the terminal while whynan itself takes long, so that nobody thinks that the program hangs."""

# pyright: strict

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

LONG: Final = 2.0
"""Seconds after which work is worth a line."""


@contextmanager
def told(what: str, *, quiet: bool) -> Generator[None]:
    """Say what is being done once it has taken two seconds, on a terminal only; the line goes when it is done."""
    out = sys.__stderr__
    shown = threading.Event()

    def show() -> None:
        with suppress(Exception):
            shown.set()
            print(f"whynan: {what}", end="", file=out, flush=True)

    if quiet or out is None or out.closed or not out.isatty():
        yield
        return
    timer = threading.Timer(LONG, show)
    timer.daemon = True
    with suppress(RuntimeError):
        # where the program is over, newer Pythons start no thread (3.12)
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if shown.is_set():
            with suppress(Exception):
                print("\r\x1b[2K", end="", file=out, flush=True)
