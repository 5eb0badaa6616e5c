"""A line on a terminal that says how far long work has come; nothing anywhere else, and nothing of short work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rich.console import Console

_PATIENCE: Final = 2.0
"""Seconds that nobody minds waiting in the dark."""


class ProgressLine:
    """Bytes looked at, of how many; the line appears after a while and leaves no trace."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        self._done = 0
        self._wanted = console.is_terminal
        self._line = Progress(
            TextColumn("looking at tensors"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
            console=console, transient=True,
        )  # fmt: skip
        self._task = self._line.add_task("", total=None)

    def begin(self, total: int) -> None:
        """So many bytes are to be looked at."""
        self._line.update(self._task, total=total)

    def advance(self, size: int) -> None:
        """So many more have been."""
        self._done += size
        if self._wanted and self._clock() - self._begun > _PATIENCE:
            self._line.start()
            self._line.update(self._task, completed=self._done)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._line.live.is_started:
            self._line.stop()
