"""A region of a program that is fully traced, and what was found in it."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from whynan.errors import NestedTraceError, UsageError
from whynan.records import Note
from whynan.rules.catalogue import readings
from whynan.run.guarded_capture import CaptureOptions, make_guarded_capture
from whynan.run.output import run_trace
from whynan.run.pipeline import fold_report, report_of
from whynan.run.proof.proving import ProofOptions, prove_fixes, with_surroundings
from whynan.run.script import command_line
from whynan.run.suppressions import Allowance, Allowances, allowance, numbered
from whynan.source.positions import set_command_source

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from whynan.capture.torch import Capture
    from whynan.config import Options
    from whynan.records import Report
    from whynan.run.proof.reruns import Rerunner
    from whynan.run.suppressions import Baseline
    from whynan.traces import Trace

STEPPED_ASIDE = Note.create("stepped_aside")

_allowances = Allowances()
_running: list[Region] = []


class Region:
    """A region in which every PyTorch operation of this thread is looked at; ``report`` is there after it.

    `options`: those of the run. `watched`: what the capture is told beyond them. `command`: the name of the region in
    its report. `quiet`: print nothing where an exception leaves it. `yields`: end, instead of refusing, where the
    program begins a trace of its own.
    """

    def __init__(
        self,
        options: Options,
        *,
        command: str,
        watched: CaptureOptions | None = None,
        quiet: bool = False,
        yields: bool = False,
    ) -> None:
        self.options = options
        self.command = command
        self.quiet = quiet
        self.yields = yields
        self.allowed: list[Allowance] = []
        self.watching = make_guarded_capture(
            memory=options.memory, ranges=options.ranges, watched=watched, reads=readings("trace", options.allow)
        )
        self.recording = None if watched is None else watched.recording
        self.notes: list[Note] = []
        self.baseline: Baseline | None = None
        self.whole_program = False
        self.main: str | None = None
        """The script, where the region is a whole program."""
        self.redacts = False
        """Whether the report leaves out what is private; a whole program's is made so where it is delivered."""
        self.folds = False
        """Whether the report has one finding for each cause; otherwise it is folded where it is delivered."""
        self._report: Report | None = None

    def __enter__(self) -> Self:
        if self._report is not None:
            raise UsageError("this trace has already run", "make a new one: with whynan.trace() as t: ...")
        outer = _running[-1] if _running else None
        if outer is not None and not outer.yields:
            raise NestedTraceError()
        if outer is not None:
            outer.notes.append(STEPPED_ASIDE)
            # nobody sees what becomes of what modules gave
            outer.watching.notify(lambda capture: capture.release_outputs())
            outer.end(early=True)
        scope = scope_of(self.options, self.allowed)
        set_command_source(command_line(sys.orig_argv[1:]).code)
        self.watching.start(scope)
        _running.append(self)
        if self.recording is not None:
            run_trace.begin(self.recording, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(kind, error, traceback)
        if error is not None and self.report.verdict != "clean" and not self.quiet:
            fold_report(self.report).show()

    def end(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
        *,
        early: bool = False,
    ) -> None:
        """Look no further and make the report; nothing where that has been done.

        `early`: the program goes on, and what it holds has not left it.
        """
        if self not in _running:
            return
        _running.remove(self)
        self.trace = self.watching.stop(kind, error, traceback, early=early)
        self._report = self._report_of(self.trace, self.allowed, error, whole=not early and error is None)
        if early:
            # what has excused nothing might have done so later
            self._report = self._report.model_copy(update={"unused_allows": ()})
        if self.recording is not None:
            self._report = run_trace.end(self.recording, self)
        if self.folds or self.redacts:
            self._report = fold_report(self._report)
        if self.redacts:
            from whynan.report.redaction import redacted

            self._report = redacted(self._report)

    def prove(self, again: Rerunner, options: ProofOptions | None = None) -> None:
        """Give the findings of the report their fixes, proved as far as `again` can run the program."""
        if self._report is not None and not self.redacts:
            around = with_surroundings(self._report, self.trace)
            self._report = prove_fixes(around, again, options or ProofOptions())

    def change(self, change: Callable[[Report], Report]) -> None:
        """Add to what was found."""
        if self._report is not None and not self.redacts:
            self._report = change(self._report)

    def take(self, other: Region, report: Report) -> None:
        """Tell what another region has found of the same, by this report of that."""
        if self._report is not None and not self.redacts:
            self.trace, self._report = other.trace, report

    def preview(self, capture: Capture) -> Report:
        """What has been found so far; the region goes on."""
        return self._report_of(capture.snapshot(), [replace(a) for a in self.allowed], None)

    def abandon_in_child(self) -> None:
        """Leave without a word: this is a child process, and the region is its parent's."""
        if self in _running:
            _running.remove(self)
            self.watching.abandon_in_child()

    def _report_of(
        self, trace: Trace, allowed: list[Allowance], error: BaseException | None, *, whole: bool = False
    ) -> Report:
        return report_of(
            trace,
            command=self.command,
            flags=self.watching.flags,
            device=self.watching.device,
            allowances=allowed,
            notes=tuple(self.notes),
            baseline=self.baseline,
            whole_program=self.whole_program and whole,
            main=self.main,
            exception=None if error is None else exception_text(error),
        )

    @property
    def report(self) -> Report:
        """What was found; raises ``UsageError`` while the region still runs."""
        if self._report is None:
            raise UsageError("the trace has not ended", "read .report after the with block")
        return self._report


def scope_of(options: Options, known: list[Allowance]) -> tuple[int, ...]:
    """The numbers of the allowances that are in force now, among those of a run; new ones become known."""
    meant = (*(Allowance(p, "allowed in the configuration") for p in options.allow), *_allowances.open)
    return tuple(dict.fromkeys(numbered(a, known) for a in meant))


def refuses_another() -> bool:
    """Whether a region runs that gives way to none."""
    return bool(_running) and not _running[-1].yields


def exception_text(error: BaseException) -> str:
    """An exception as a report names it: its type, and what it says if it can say it."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def allow_block(pattern: str, reason: str) -> AbstractContextManager[Allowance]:
    """An allowance for as long as a block runs, in the regions that are open and in those begun inside it."""
    return _open_allowance(allowance(pattern, reason))


@contextmanager
def _open_allowance(meant: Allowance) -> Generator[Allowance]:
    with ExitStack() as stack:
        for running in _running:
            stack.enter_context(running.watching.scope(numbered(meant, running.allowed)))
        yield stack.enter_context(_allowances.region(meant))
