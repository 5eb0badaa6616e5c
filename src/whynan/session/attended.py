"""A program that `whynan run` attends: traced from the moment torch is there, stopped where it must, reported once."""

# pyright: strict

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from whynan.config import Options
from whynan.records import Coverage, ExitStatus, Report, Run
from whynan.session import recorded
from whynan.session.ending import debug, hide, stopped, user_frame
from whynan.session.region import Region, exception_text
from whynan.session.runs import versions
from whynan.session.waiting import told
from whynan.session.watching import Watched
from whynan.traces.writing import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from whynan.capture.torch import Capture
    from whynan.records import Finding


MEMORY: Final = 256 << 20
"""Bytes of operands that a run holds unless it is told another number; a region holds fewer."""


NO_TORCH: Final = "the program never loaded torch, so there was nothing to look at"


class Attended:
    """The run of one program; ``apart`` sets its modules and paths aside for as long as whynan works."""

    def __init__(self, told: str, apart: Callable[[], AbstractContextManager[None]]) -> None:
        document: dict[str, Any] = json.loads(told)
        self.options = Options.restored(document["options"])
        self._status_file: str = document["status"]
        self._command: str = document["command"]
        self._apart = apart
        self._recording = None
        if self.options.trace is not None:
            self._recording = TraceWriter(self.options.trace, redact=self.options.redact)
        self._region: Region | None = None
        self._reported = False
        self._stopped = False

    def begin(self) -> None:
        """Look at everything from here on."""
        asks = self.options.on_nonfinite != "continue"
        watched = Watched(
            on_sink=self._ask if asks else None,
            only=self.options.only,
            first_step=self.options.start_step,
            steps=self.options.steps,
            threads=True,
            recording=self._recording,
        )
        options = self.options if self.options.memory is not None else replace(self.options, memory=MEMORY)
        self._region = Region(options, command=self._command, watched=watched, quiet=True, yields=True)
        self._region.whole_program = True
        if self.options.baseline is not None:
            from whynan.session.baseline import Baseline

            self._region.baseline = Baseline.read(self.options.baseline)
        self._region.__enter__()

    def end(self, error: BaseException | None = None, *, early: bool = False) -> None:
        """Tell what was found, once: on the standard error stream and wherever an option says.

        `early`: in the midst of the program.
        """
        if error is not None:
            hide(error)
        if self._reported:
            return
        self._reported = True
        region = self._region
        if region is None:
            self._say_nothing_ran(error)
            self._write_status(whynan=0)
            return
        kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
        with told("explaining what was found", quiet=self.options.quiet):
            region.end(kind, error, traceback, early=early)
        from whynan.session.delivery import deliver

        report = self._final(region.report)
        if self._recording is not None:
            recorded.again(self._recording, report)
        deliver(report, self.options, None if self._recording is None else self._recording.names)
        self._write_status(whynan=self._exit_status(region.report))

    def forked(self) -> None:
        """In a child of the program's: nothing is looked at there."""
        self._reported = True
        if self._region is not None:
            self._region.desert()

    def _ask(self, capture: Capture) -> BaseException | None:
        """At a door of the program, after a fatal sink: the exception to end the run with, if it is to end."""
        with self._apart():
            errors = self._errors(capture)
            if not errors:
                return None
            frame = user_frame(sys._getframe())  # pyright: ignore[reportPrivateUsage]
            self._stopped = self.options.on_nonfinite == "stop"
            self.end(early=True)
        if self.options.pdb and frame is not None:
            debug(frame)
        if not self._stopped:
            from whynan.errors import NonFiniteError

            return NonFiniteError(errors[0])
        return stopped()

    def _errors(self, capture: Capture) -> tuple[Finding, ...]:
        assert self._region is not None
        report = self._region.preview(capture)
        if self.options.redact:
            from whynan.report.redaction import redacted

            # the program's traceback ends with the message of one of them
            report = redacted(report, None if self._recording is None else self._recording.names)
        return tuple(f for f in report.findings if f.severity == "error")

    def _say_nothing_ran(self, error: BaseException | None) -> None:
        """Torch was never loaded: a document where one was asked for, else one line."""
        from whynan.session import delivery

        if self.options.json is None:
            if not self.options.quiet and error is None:
                delivery.say(NO_TORCH)
            return
        coverage = Coverage(notes=(NO_TORCH,))
        exception = None if error is None else exception_text(error)
        status = ExitStatus(script=0 if error is None else 1, whynan=0)
        run = Run(command=self._command, exit_status=status, versions=versions(), exception=exception)
        delivery.deliver(Report(verdict="clean", run=run, coverage=coverage), self.options)

    def _final(self, report: Report) -> Report:
        status = report.run.exit_status.model_copy(update={"whynan": self._exit_status(report)})
        if self._stopped:
            status = status.model_copy(update={"script": None})
        return report.model_copy(update={"run": report.run.model_copy(update={"exit_status": status})})

    def _exit_status(self, report: Report) -> int:
        strict = self.options.strict and report.verdict == "damaged"
        return 1 if strict else report.run.exit_status.whynan

    def _write_status(self, *, whynan: int) -> None:
        status = {"whynan": whynan, "stopped": self._stopped}
        with open(self._status_file, "w", encoding="utf-8", opener=_private) as file:
            json.dump(status, file)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
