"""Further runs of a program, from within: each is over, and its process with it, as soon as what is asked is known.

The one that explains a bad step is here, and what those that prove fixes have in common.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from whynan.config import Options
from whynan.faults import report_internal_error
from whynan.records import Note, Replay
from whynan.report.json import to_json
from whynan.report.redaction import redacted
from whynan.run.controller import MEMORY
from whynan.run.guarded_capture import CaptureOptions
from whynan.run.output import capsules
from whynan.run.output.files import write_text
from whynan.run.proof.reruns import NoRerun
from whynan.run.proof.whole_program import CAPSULE, STEP, WHY
from whynan.run.region import Region, exception_text
from whynan.run.script import Beginning, Program
from whynan.run.stop import hide
from whynan.training.fidelity import StepSignature, place_of
from whynan.verify.in_place.instrument import Loaded

if TYPE_CHECKING:
    from typing import NoReturn

    from whynan.capture.torch import Capture
    from whynan.capture.torch.kept_operations import OperationKeeper
    from whynan.capture.torch.sinks.gradients import Fault
    from whynan.records import Report
    from whynan.run.isolation import Isolation

End = Literal["door", "step", "end", "raised"]
"""How a run is over: at a door of the program's, after the steps that are traced, at its end, or by an exception."""
NO_TRIAL: Final = "it takes a run of the whole program to see this step again, and none was made for the fix"
_NEVER: Final = 1 << 62
_leave: Final = os._exit


class FurtherRun:
    """A run of a program again, of which a folder says what was asked for; its process ends with it.

    `isolation`: sets the program's modules and paths aside for as long as whynan works.
    """

    def __init__(self, folder: str, asked: dict[str, Any], isolation: Isolation) -> None:
        self.folder = folder
        self.asked = asked
        options = Options.from_document(asked["options"])
        self.options = options if options.memory is not None else replace(options, memory=MEMORY)
        self.beginning = Beginning(Program.from_document(asked["program"]))
        self.isolation = isolation
        self.is_over = False
        self._pid = os.getpid()

    def source_overrides(self) -> Loaded:
        """What the program is loaded with, from before its first line on."""
        return Loaded({})

    def begin(self) -> None:
        """Torch is loaded: look at everything from here on."""
        try:
            with self.isolation:
                self.start_capture()
        except Exception:
            report_internal_error()
            _leave(1)

    def start_capture(self) -> None:
        """Look at everything from here on."""
        raise NotImplementedError

    def end(self, error: BaseException | None = None, *, script: int = 0) -> int:
        """The program has ended, and so does the process."""
        del script
        self.over("end" if error is None else "raised", error)
        return 0

    def over(self, end: End, error: BaseException | None = None) -> None:
        """End the run here, and the process; nothing where that has begun."""
        if self.is_over or os.getpid() != self._pid:
            return
        self.is_over = True
        with self.isolation:
            try:
                self.write_result(end, error)
            finally:
                _leave(0)

    def write_result(self, end: End, error: BaseException | None) -> None:
        """Leave what is to be known of the run."""
        raise NotImplementedError

    def after_fork(self) -> None:
        """In a child of the program's: nothing is looked at there."""
        raise NotImplementedError

    def leave_off(self, why: str) -> NoReturn:
        """End the process: nothing of this run is to be used."""
        write_text(os.path.join(self.folder, WHY), why)
        _leave(0)

    def with_baseline(self, region: Region) -> Region:
        """A region that knows what an earlier report has found."""
        if self.options.baseline is not None:
            from whynan.run.suppressions import Baseline

            region.baseline = Baseline.read(self.options.baseline)
        return region


class StepRun(FurtherRun):
    """The second run of a program: its bad step is traced and compared with the first run's; the process ends there."""

    def __init__(self, folder: str, asked: dict[str, Any], isolation: Isolation) -> None:
        super().__init__(folder, asked, isolation)
        self._wanted = StepSignature.from_document(asked["signature"])

    def start_capture(self) -> None:
        """Run up to the step."""
        from whynan.training.guard import Guard
        from whynan.training.listeners import StepListener

        self._guard = Guard(explain=self._on_bad_step, deliver=_deliver_nothing, marking=StepListener(self._stepped))
        self._keeper = capsules.keeper_for(self.options)
        watched = CaptureOptions(threads=True, first_step=1 if self._wanted.step == 1 else _NEVER, keeper=self._keeper)
        command = self.beginning.program.name
        self._region = self.with_baseline(Region(self.options, command=command, watched=watched, quiet=True))
        # first: it hears of a step before the guard does
        self._region.__enter__()
        self._guard.install()

    def write_result(self, end: End, error: BaseException | None) -> None:
        """The program has ended, and did not come to the step."""
        del end
        how = "ended" if error is None else f"ended by {type(error).__name__}"
        self.leave_off(f"it {how} before it came to step {self._wanted.step}")

    def after_fork(self) -> None:
        """In a child of the program's: nothing is looked at there."""
        self._guard.on = False
        self._region.abandon_in_child()

    def _stepped(self) -> None:
        """A step was made: from the one before the bad one on, everything is looked at."""
        known = self._guard.optimizers()
        at = self._wanted.optimizer
        if at < len(known) and self._guard.attempts(known[at]) == self._wanted.step - 1:
            self._region.watching.notify(lambda capture: capture.start_at_step(self._wanted.step))

    def _on_bad_step(self, fault: Fault) -> None:
        """A step is bad: perhaps the one that is looked for."""
        place = place_of(fault.optimizer, self._guard)
        if (place, fault.step) != (self._wanted.optimizer, self._wanted.step):
            # as a point that is tried and not kept, or one that is meant
            return
        with self.isolation:
            found = StepSignature.of_fault(fault, self._guard)
            if found != self._wanted:
                self.leave_off(f"{_difference(found, self._wanted)} than in the first run")
            self._region.end(early=True)
            self._region.prove(NoRerun(NO_TRIAL))
            self._hand_over(self._region.report)

    def _hand_over(self, report: Report) -> NoReturn:
        meant = report.coverage.notes_of("allowed")
        if not report.findings and not meant:
            self.leave_off("nothing bad was born in it")
        replay = Replay(kind="rerun", faithful=True, typed_why=_same(self._wanted))
        report = report.model_copy(update={"run": report.run.model_copy(update={"replay": replay})})
        if self.options.capsule is not None:
            within = replace(self.options, capsule=os.path.join(self.folder, CAPSULE))
            report = capsules.pack_finding(report, self._keeper, within, {})
        if self.options.redact:
            report = redacted(report)
        write_text(os.path.join(self.folder, STEP), to_json(report))
        _leave(0)


class WholeRun(FurtherRun):
    """A run that is traced as the first one was, and over where that was stopped or has ended."""

    keeper: OperationKeeper | None = None

    def __init__(self, folder: str, asked: dict[str, Any], isolation: Isolation) -> None:
        super().__init__(folder, asked, isolation)
        self.doors = 0
        self._region: Region | None = None

    def write_findings(self, region: Region, end: End, why: str) -> None:
        """The run is over and its region has ended: leave what is to be known of it."""
        raise NotImplementedError

    def start_capture(self) -> None:
        """Torch is loaded: look at everything from here on."""
        from whynan.replay.snapshot import restore_rng_document

        if self.asked["eager"]:
            _uncompiled()
        watched = CaptureOptions(
            on_sink=None if self.options.on_nonfinite == "continue" else self._on_fatal_sink,
            only=self.options.only,
            first_step=self.options.start_step,
            steps=1 if self.options.watches else self.options.steps,
            watches=self.options.watches,
            threads=True,
            keeper=self.keeper,
            at_once=self.options.on_nonfinite == "raise",
        )
        command = self.beginning.program.name
        self._region = self.with_baseline(Region(self.options, command=command, watched=watched, quiet=True))
        restore_rng_document(self.asked["random"])
        self._region.__enter__()
        self._region.watching.notify(self._hear)

    def after_fork(self) -> None:
        """In a child of the program's: nothing is looked at there."""
        self.is_over = True
        if self._region is not None:
            self._region.abandon_in_child()

    def passed(self) -> None:
        """The program has come to a door."""

    def write_result(self, end: End, error: BaseException | None) -> None:
        """End the region, and leave what is to be known of it."""
        region = self._region
        if region is None:
            return
        if error is not None:
            hide(error)
        kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
        region.end(kind, error, traceback, early=end in ("door", "step"))
        self.write_findings(region, end, "" if error is None else exception_text(error))

    def _hear(self, capture: Capture) -> None:
        def door() -> None:
            self.doors += 1
            self.passed()

        capture.listen(door, lambda: self.over("step"))

    def _on_fatal_sink(self, capture: Capture) -> None:
        """At a door, after a fatal sink: the first run was stopped here, if it is an error."""
        assert self._region is not None
        with self.isolation:
            is_error = any(f.severity == "error" for f in self._region.preview(capture).findings)
        if is_error:
            self.over("door")


def _deliver_nothing(made: object, fault: Fault) -> None:
    """What a bad step was that is not the one: nobody asks."""
    del made, fault


def _same(wanted: StepSignature) -> Note:
    losses, gradients = len(wanted.losses), len(wanted.bad)
    found: dict[str, Any] = {"loss_count": losses, "gradients": gradients, "read": False, "raised": False}
    return Note.create("identical", **found, whole=True, way=None, eager=False)


def _difference(found: StepSignature, wanted: StepSignature) -> str:
    said = {"weights": "other weights", "random": "other random numbers", "losses": "other losses"}
    other = (text for name, text in said.items() if getattr(found, name) != getattr(wanted, name))
    return next(other, "other bad gradients")


def _uncompiled() -> None:
    import torch

    torch.compiler.set_stance("force_eager")
