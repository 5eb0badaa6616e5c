"""A capture around a region of the user's program, which may fail without taking the program down."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whynan.capture.failure import FAILED, report_internal_error
from whynan.errors import MissingExtraError, WhynanError
from whynan.records import Coverage
from whynan.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from whynan.capture.torch import Capture


class Watching:
    """The capture of one region; whatever fails in it is reported once, and the region goes on unwatched."""

    def __init__(self, make: Callable[[], Capture]) -> None:
        self._make = make
        self.capture: Capture | None = None
        self.flags: dict[str, Any] = {}
        self.device = "cpu"

    def start(self, scope: tuple[int, ...]) -> None:
        """Enter the capture; raises ``WhynanError`` where the user can do something about it."""
        try:
            self.capture = self._make()
            self.capture.tracer.scope = scope
            self.capture.__enter__()
        except WhynanError:
            raise
        except Exception:
            self._abandon()

    def stop(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Trace:
        """Leave the capture; gives what it saw."""
        capture = self.capture
        if capture is None:
            return unseen()
        try:
            capture.__exit__(kind, error, traceback)
            self.flags, self.device = capture.flags(), capture.device()
        except Exception:
            self._abandon()
        return capture.trace or unseen()

    def tell(self, what: Callable[[Capture], None]) -> None:
        """Let the capture know something."""
        if self.capture is not None:
            try:
                what(self.capture)
            except Exception:
                self._abandon()

    def scope(self, number: int) -> AbstractContextManager[None] | None:
        """A numbered stretch of the region; None where nothing is watched."""
        return None if self.capture is None else self.capture.scope(number)

    def _abandon(self) -> None:
        capture, self.capture = self.capture, None
        if capture is not None:
            capture.abandon()
        report_internal_error()


def watching(*, memory: int | None, ranges: bool, copy_all: bool) -> Watching:
    """A capture to be; raises ``MissingExtraError`` at its start where torch is not installed."""

    def make() -> Capture:
        try:
            from whynan.capture.torch import Capture
        except ModuleNotFoundError as error:
            if error.name == "torch":
                raise MissingExtraError("torch") from error
            raise
        return Capture(memory=memory, ranges=ranges, copy_all=copy_all)

    return Watching(make)


def unseen() -> Trace:
    """What is left of a region that could not be watched."""
    return Trace([], [], Coverage(events=0, eager=0, compiled_regions=0, notes=(FAILED,)), failed=True)
