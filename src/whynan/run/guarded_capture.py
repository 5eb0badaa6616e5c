"""A capture around a region of the user's program, which may fail without taking the program down."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from whynan.errors import MissingExtraError, WhynanError
from whynan.faults import report_internal_error
from whynan.records import Coverage
from whynan.traces import Trace
from whynan.traces.format import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from whynan.capture.torch import Capture
    from whynan.capture.torch.kept_operations import OperationKeeper
    from whynan.traces.writer import TraceWriter


class GuardedCapture:
    """The capture of one region; whatever fails in it is reported once, and the region goes on unwatched."""

    def __init__(self, make: Callable[[], Capture]) -> None:
        self._make = make
        self.capture: Capture | None = None
        self.flags: dict[str, Any] = {}
        self.device = "cpu"
        self.failed = False

    def start(self, scope: tuple[int, ...]) -> None:
        """Enter the capture; raises ``WhynanError`` where the user can do something about it."""
        try:
            self.capture = self._make()
            self.capture.context.enter_scope(*scope)
            self.capture.__enter__()
        except WhynanError:
            raise
        except Exception:
            self._abandon()

    def stop(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        *,
        early: bool = False,
    ) -> Trace:
        """Leave the capture; gives what it saw. `early`: the program goes on with what it holds."""
        capture = self.capture
        if capture is None:
            return failed_trace()
        try:
            if early:
                capture.leave()
            else:
                capture.__exit__(kind, error, traceback)
            self.flags, self.device = capture.flags(), capture.device()
        except Exception:
            self._abandon()
        # nothing of the capture outlives its region
        self.capture = None
        trace = capture.trace or failed_trace()
        return _cut_short(trace) if self.failed and not trace.failed else trace

    def abandon_in_child(self) -> None:
        """Leave the capture in a forked child, where nothing is looked at."""
        capture, self.capture = self.capture, None
        if capture is not None:
            capture.abandon()

    def notify(self, what: Callable[[Capture], None]) -> None:
        """Let the capture know something."""
        if self.capture is not None:
            try:
                what(self.capture)
            except Exception:
                self._abandon()

    @contextmanager
    def scope(self, number: int) -> Generator[None]:
        """A numbered stretch of the region."""
        self.notify(lambda capture: capture.enter_scope(number))
        try:
            yield
        finally:
            self.notify(lambda capture: capture.leave_scope(number))

    def fail(self) -> None:
        """Something of whynan's beside the capture has failed; called while its exception is handled."""
        self.failed = True
        report_internal_error()

    def _abandon(self) -> None:
        capture, self.capture = self.capture, None
        if capture is not None:
            capture.abandon()
        self.fail()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """What a capture is told beyond the options of a run.

    `copy_all`: keep every overwritten operand. `on_sink`: asked, at the doors of the program, whether a bad number
    that has just reached a fatal sink ends the run; what it gives is raised there. `only`: the path or class of the
    modules whose forward is looked at. `first_step`, `steps`: look from that optimizer step on, at so many. `watches`:
    the steps after them are watched. `threads`: look at the threads that the program starts, too. `recording`: writes
    the trace to disk. `keeper`: keeps the operations that bear bad numbers whole. `sees_steps`: not of an evaluation,
    which may be over while a step walks over torch's hooks. `at_once`: what a module gives without a backward is a sink
    before the program could mend it, as where a bad number is to be raised there.
    """

    copy_all: bool = False
    on_sink: Callable[[Capture], BaseException | None] | None = None
    only: str | None = None
    first_step: int = 1
    steps: int | None = None
    watches: bool = False
    threads: bool = False
    recording: TraceWriter | None = None
    keeper: OperationKeeper | None = None
    sees_steps: bool = True
    at_once: bool = False


def make_guarded_capture(
    *, memory: int | None, ranges: bool, watched: CaptureOptions | None = None, reads: frozenset[str] = frozenset()
) -> GuardedCapture:
    """A capture to be; raises ``MissingExtraError`` at its start where torch is not installed.

    `reads`: what is read for the rules of silent damage.
    """
    told = watched or CaptureOptions()

    def make() -> Capture:
        try:
            from whynan.capture.torch import Capture
        except ModuleNotFoundError as error:
            if error.name == "torch":
                raise MissingExtraError("torch") from error
            raise
        return Capture(
            memory=memory,
            ranges=ranges,
            copy_all=told.copy_all,
            on_sink=told.on_sink,
            only=told.only,
            first_step=told.first_step,
            steps=told.steps,
            watches=told.watches,
            recording=told.recording,
            threads=told.threads,
            reads=reads,
            keeper=told.keeper,
            sees_steps=told.sees_steps,
            at_once=told.at_once,
        )

    return GuardedCapture(make)


def _cut_short(trace: Trace) -> Trace:
    return replace(trace, coverage=trace.coverage.with_notes(FAILED), failed=True)


def failed_trace() -> Trace:
    """What is left of a region that could not be watched."""
    return Trace([], [], Coverage(events=0, eager=0, compiled_regions=0, typed_notes=(FAILED,)), failed=True)
