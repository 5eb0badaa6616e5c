"""The controller of ``whynan run``: traces from the first import of torch, stops where it must, reports once."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.ranks import (
    TOGETHER,
    act_in_concert,
    acts_blindly,
    has_started_others,
    is_one_of_several,
    launched,
    rank,
    spawned_store,
)
from whynan.faults import report_internal_error, tell_once
from whynan.records import Note
from whynan.run.guarded_capture import CaptureOptions
from whynan.run.output import capsules, run_trace
from whynan.run.output.delivery import Delivery, deliver, progress_message
from whynan.run.output.files import is_replaceable
from whynan.run.pipeline import merge_reports, with_note
from whynan.run.proof.reruns import RUN_ONCE, NoRerun
from whynan.run.region import Region, exception_text
from whynan.run.stop import Terminating, debugger, hide, stepping_optimizer, stop_exception, user_frame
from whynan.traces.format import FAILED
from whynan.traces.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whynan.capture.torch import Capture
    from whynan.capture.torch.kept_operations import OperationKeeper
    from whynan.capture.torch.sinks.gradients import Fault
    from whynan.config import Options
    from whynan.records import Finding, Report
    from whynan.run.isolation import Isolation
    from whynan.run.proof.whole_program import WholeProgramProof
    from whynan.run.ranks.concert import Concert
    from whynan.run.ranks.spawning import Spawning
    from whynan.run.script import Beginning
    from whynan.run.watch.training import Training


# -- Run controller: a program is traced from the moment that torch is there, stopped where it must, reported once -----


MEMORY: Final = 256 << 20
"""Bytes of operands that a run holds unless it is told another number; a region holds fewer."""


class Controller:
    """The run of one program; ``whynan`` is whynan's exit status once it is told.

    `isolation`: sets the program's modules and paths aside for as long as whynan works.
    """

    def __init__(self, beginning: Beginning, options: Options, isolation: Isolation) -> None:
        self.options = options
        self.whynan = 0
        self._command = beginning.program.name
        self._isolation = isolation
        self._recording = None
        if self.options.trace is not None:
            self._recording = TraceWriter(self.options.trace, redact=self.options.redact)
        self._keeper: OperationKeeper | None = None
        self._region: Region | None = None
        self._reported = False
        self._stopped = self._told = self._is_terminated = False
        self._ends_all = False
        """Whether this rank ends all, by an exception too."""
        self._script = 0
        self._notes: list[Note] = []
        self._terminating: Terminating | None = None
        self._training: Training | None = None
        self._unexplained = False
        self._proof: WholeProgramProof | None = None
        self._waiting: Report | None = None
        self._delivered: Report | None = None
        self._exception: str | None = None
        self._concert: Concert | None = None
        """With the other ranks, where a launcher has started several."""
        self.watched: Any = None
        """What ranks run that the program starts itself, in the place of its own function."""
        self._spawning: Spawning | None = None
        names = None if self._recording is None else self._recording.names
        self._delivery = Delivery(options, names)
        if options.rerun and (not options.quiet or options.json is not None):
            from whynan.run.proof.whole_program import WholeProgramProof

            self._proof = WholeProgramProof(beginning, options)
        tell_once()

    def begin(self) -> None:
        """Look at everything from here on."""
        if launched(os.environ) is not None:
            self._terminating = Terminating(self.on_sigterm)
            self._terminating.begin()
            self._join()
        elif self.options.together and self.watched is not None:
            from whynan.run.ranks.spawning import Spawning

            self._spawning = Spawning(self.watched)
            self._spawning.install()
        if self._proof is not None:
            # before anything is looked at
            self._proof.begin()
        self._keeper = capsules.keeper_for(self.options)
        asks = self.options.on_nonfinite != "continue"
        watched = CaptureOptions(
            on_sink=self._ask if asks else None,
            only=self.options.only,
            first_step=self.options.start_step,
            steps=1 if self.options.watches else self.options.steps,
            watches=self.options.watches,
            threads=True,
            recording=self._recording,
            keeper=self._keeper,
            at_once=self.options.on_nonfinite == "raise" or self.options.pdb,
        )
        options = self.options if self.options.memory is not None else replace(self.options, memory=MEMORY)
        self._region = Region(options, command=self._command, watched=watched, quiet=True, yields=True)
        self._region.whole_program = self.options.looks_at_all
        self._region.main = getattr(sys.modules.get("__main__"), "__file__", None)
        if self.options.baseline is not None:
            from whynan.run.suppressions import Baseline

            self._region.baseline = Baseline.read(self.options.baseline)
        self._region.__enter__()
        if self.options.watches and not self._region.watching.failed:
            from whynan.run.watch.training import Training

            aside = partial(self._region.end, early=True)
            self._training = Training(options, command=self._command, ended=self._spoilt, aside=aside, traced=1)
            self._training.redacts, self._training.yields = False, True
            self._training.replays.recording = partial(run_trace.replay_writer, self._recording)
            self._training.replays.baseline = self._region.baseline
            self._training.replays.keeper = self._keeper
            self._training.replays.audience = self
            self._training.look_beside()
            self._training.guard.decided = self._decides
            self._training.guard.keeps_steps = self.options.prove and not is_one_of_several()
            if self._proof is not None:
                self._proof.hear(self._training)
            elif not self.options.rerun:
                self._training.unexplained = self._name_the_option
            self._training.begin()
            if self._concert is not None:
                self._training.suspicion = self._concert.suspicion
                self._training.replays.ranks = self._concert.rehearsal
            if not self.options.rerun:
                self._training.marks.record_import()
                recorded = self._training.marks.record_program
                self._region.watching.notify(lambda capture: capture.call_at_first_event(recorded))
        if self._concert is not None:
            self._concert.watch_steps(None if self._training is None else self._training.guard)

    def _join(self) -> None:
        """Join the other ranks, or have files of our own where that cannot be."""
        from whynan.run.output.own_paths import with_own_document
        from whynan.run.ranks.concert import join_ranks

        self._concert = join_ranks(self.options, self) if self.options.together else None
        if self._concert is None:
            self.options = with_own_document(self.options)
            self._delivery = Delivery(self.options, None if self._recording is None else self._recording.names)
        elif self.options.on_nonfinite in ("stop", "raise"):
            act_in_concert()

    def stop_with_others(self) -> BaseException | None:
        """Another rank has found what stops the run, and this one is about to make a step: what it is to end with."""
        if self._reported or (self._training is not None and self._training.guard.here.replaying):
            return None
        self._stopped = True
        return self._ending(None)

    def stop_blocked(self) -> None:
        """The same, from another thread, of a rank that stands where it cannot end itself."""
        if self._reported:
            return
        self._stopped = True
        with self._isolation:
            self.end(early=True)

    def leave(self, report: Report) -> None:
        """Have a report stand where --json says, until that of all ranks takes its place."""
        with self._isolation:
            self._delivery.leave(report)

    def _end_all(self, found: Sequence[Finding]) -> None:
        """The run is to end for what was found: at the program's line where that is asked for, else without a word."""
        self._stopped = self.options.on_nonfinite == "stop"
        if self._concert is not None:
            from whynan.run.ranks.merging import arrival_of

            self._ends_all = True
            # the rank raises that was first
            self._stopped |= all(arrival_of(finding) is not None for finding in found)

    @property
    def is_stopped_in_concert(self) -> bool:
        """Whether whynan has stopped the run on all of its ranks."""
        return (self._stopped or self._ends_all) and self._concert is not None

    def close(self) -> None:
        """Nothing of the run goes on."""
        if self._spawning is not None:
            self._spawning.remove()
        if self._concert is not None:
            self._concert.close()

    def end(self, error: BaseException | None = None, *, early: bool = False, script: int = 0) -> None:
        """Tell what was found, once: on the standard error stream and wherever an option says.

        `early`: in the midst of the program. `script`: the program's exit status.
        """
        if error is not None:
            hide(error)
        self._script = script or self._script
        if self._reported:
            self._amend()
            return
        self._reported = True
        if self._concert is not None:
            self._concert.begin_report()
        region = self._region
        assert region is not None
        watched = 0
        self._exception = None if error is None else exception_text(error)
        if self._training is not None:
            if self._training.beside is not None and isinstance(error, Exception):
                self._training.beside.on_exception(error, self._show_opening)
            self._training.end()
            watched = self._training.guard.watched
        kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
        with progress_message("explaining what was found", quiet=self.options.quiet):
            # what has excused nothing may have done so in the steps that were watched
            region.end(kind, error, traceback, early=early or bool(watched))
        if not any(finding.fixes for finding in region.report.findings):
            self._prove_end(region, error)
        if self._training is not None:
            self._training.marks.forget_program()
        found = region.report if self._training is None else self._training.report_after_trace(region.report)
        self._publish(found if error is None else _with_exception(found, error))

    def explained(self, report: Report, *, by_itself: bool = False) -> None:
        """What is bad is explained: the first finding is told at once, if the run is about to end for it.

        `by_itself`: the program will end itself, before the rest of the report.
        """
        if self._concert is not None and not self._reported:
            status = report.run.exit_status.model_copy(update={"script": None})
            run = report.run.model_copy(update={"exit_status": status})
            self._concert.tell_early(report.model_copy(update={"run": run}))
        # of a program that is run again for a proof, the verdict comes much later
        if not self._reported and self._ends_run() and not (by_itself and self._proof is not None):
            self._show_opening(report)

    def proved(self, report: Report) -> None:
        """The program is about to end itself: what is to be said of its first finding is said before that."""
        if self._concert is not None:
            return
        with self._isolation:
            self._delivery.proved(report)

    def _ends_run(self) -> bool:
        """Whether a bad step ends the run, or makes it raise."""
        if self._concert is not None:
            return self.options.on_nonfinite in ("stop", "raise")
        return self.options.on_nonfinite not in ("continue", "skip") and not is_one_of_several()

    def _show_opening(self, report: Report) -> None:
        """Print the first finding of a report that is delivered once its fixes are proved."""
        if self._concert is not None:
            # the first finding of all ranks is not known yet
            return
        with self._isolation:
            if report.run.exception is None and self._exception is not None:
                report = report.model_copy(update={"run": report.run.model_copy(update={"exception": self._exception})})
            self._delivery.explained(report)

    def trying(self, number: int, total: int) -> None:
        """So many changes of so many are being tried."""
        with self._isolation:
            self._delivery.trying(number, total)

    def _name_the_option(self, fault: Fault) -> None:
        self._unexplained = not (is_one_of_several() or fault.lag or fault.skipped)

    def _publish(self, found: Report) -> None:
        for ranks in [] if self._spawning is None else self._spawning.reports():
            found = _of_ranks(ranks, found)
        if self._unexplained:
            found = with_note(found, Note.create("rerun_advice"))
        report = self._final(found if self._proof is None else self._proof.with_refusal_note(found))
        self.whynan = report.run.exit_status.whynan
        try:
            if self._proof is not None and self._region is not None and self._proof.wants(report, self._region.report):
                self._record(report)
                self._waiting = report
            else:
                visits = {} if self._training is None else self._training.replays.visits
                self._deliver(capsules.pack_finding(report, self._keeper, self.options, visits))
        finally:
            self._told = True

    def finish(self, *, interrupted: bool = False) -> None:
        """The program is over: run it again where that was asked for, and tell what came of it."""
        if self._waiting is None or self._proof is None:
            return
        found, self._waiting = self._waiting, None
        try:
            names = None if self._recording is None else self._recording.names
            if self._proof.keeps_findings:
                self._delivery.explained(found)
            found = self._proof.report(found, names, interrupted=interrupted)
        except Exception:
            found = with_note(found, FAILED)
            report_internal_error()
        finally:
            found = self._ended(found)
            self.whynan = found.run.exit_status.whynan
            self._deliver(found, private=self._proof.is_private)

    def _ended(self, report: Report) -> Report:
        """A report with the exit status that the program has come to since it was made."""
        status = report.run.exit_status
        # what the program makes of the exception that is raised in it is not known yet
        is_open = self._stopped or (self._ends_all and not self._script)
        script = None if is_open else self._script or status.script or 0
        status = status.model_copy(update={"script": script, "whynan": self._exit_status(report)})
        return report.model_copy(update={"run": report.run.model_copy(update={"exit_status": status})})

    def _amend(self) -> None:
        """Put into what was written the exit status that was known only once the program had ended."""
        report = self._delivered
        if report is None or self._stopped or not self._script:
            return
        if self._concert is not None:
            report = self._concert.amended(report, self._script)
        to = self.options.json
        again = replace(self.options, quiet=True, json=None if to is None or not is_replaceable(to) else to)
        self._record(self._ended(report))
        deliver(self._ended(report), again, None if self._recording is None else self._recording.names)

    def _record(self, report: Report) -> None:
        if self._recording is not None:
            run_trace.update_trace(self._recording, report, whole=self._training is not None)

    def _deliver(self, report: Report, *, private: bool = False) -> None:
        """Tell a report; where it is `private`, what --redact leaves out was left out already."""
        self._record(report)
        if self._concert is None:
            self._delivered = report
            self._delivery.deliver(report, is_public=private)
            return
        shares = self._training is not None and self._training.replays.is_share_good
        merged = self._concert.merge(
            report, stopped=self._stopped or self._ends_all, terminated=self._is_terminated, is_share_good=shares
        )
        # the launcher would end the others as soon as one has failed
        self.whynan = 0
        if merged is not None:
            self._delivered = merged
            self.whynan = self._exit_status(merged)
            if spawned_store() is None:
                self._delivery.deliver(merged)
            self._concert.conclude(merged)

    def on_sigterm(self) -> bool:
        """The program is told to terminate: its report, first; whether it may end now, or is at its report already."""
        if self._concert is not None:
            self._concert.hurry()
        if self._reported:
            return self._told
        self._is_terminated = True
        self._notes.append(Note.create("terminated"))
        try:
            with self._isolation:
                self.end(script=128 + signal.SIGTERM)
        except Exception:
            report_internal_error()
        return True

    def after_fork(self) -> None:
        """In a child of the program's: nothing is looked at there."""
        self._reported = True
        if self._terminating is not None:
            self._terminating.after_fork()
        if self._spawning is not None:
            self._spawning.remove()
        if self._concert is not None:
            self._concert.abandon_in_child()
        if self._training is not None:
            self._training.guard.on = False
        if self._region is not None:
            self._region.abandon_in_child()

    def _ask(self, capture: Capture) -> BaseException | None:
        """At a door of the program, after a fatal sink: the exception to end the run with, if it is to end."""
        if is_one_of_several() and self._concert is None:
            return None
        with self._isolation:
            errors = self._errors(capture)
            if not errors:
                return None
            self._end_all(errors)
            optimizer = stepping_optimizer(sys._getframe())  # pyright: ignore[reportPrivateUsage]
            if self._training is not None and optimizer is not None:
                self._prove_step(self._training, optimizer)
        return self._ending(errors[0])

    def _decides(self, fault: Fault) -> BaseException | None:
        """While it is traced, the program has read a bad loss and decides on it: what to end the run with."""
        capture = None if self._region is None else self._region.watching.capture
        if capture is None or self._training is None or self.options.on_nonfinite == "continue" or acts_blindly():
            return None
        with self._isolation:
            errors = self._errors(capture)
            if not errors or fault.decision is None:
                return None
            by_itself = self._training.is_allowed(fault.decision)
            self._prove(self._training, fault, by_itself=by_itself)
            if by_itself:
                return None
            self._end_all(errors)
        return self._ending(errors[0])

    def _ending(self, error: Finding | None) -> BaseException | None:
        """Tell what was found; gives what the run ends with, if anything."""
        if self._concert is not None:
            self._concert.alarm()
        with self._isolation:
            self.end(early=True)
            opened = self._debugger()
        if opened is not None:
            opened()
        if self._stopped:
            return stop_exception()
        from whynan.errors import NonFiniteError

        return None if error is None else NonFiniteError(error)

    def _prove_step(self, training: Training, optimizer: Any) -> None:
        """An optimizer is about to make a bad step, or has just made one that bore bad numbers itself."""
        checkpoint = training.guard.here.checkpoint
        if checkpoint is None or checkpoint.optimizer is not optimizer:
            self._prove(training, training.replays.step(optimizer))
            return
        with checkpoint.rewound() as made:
            self._prove(training, made or training.replays.step(optimizer))

    def _prove_end(self, region: Region, error: BaseException | None) -> None:
        """The program is over, or stopped where no step was about to be made."""
        found = region.report.findings or region.report.damaging
        if self._training is None or is_one_of_several() or self._is_terminated or not found:
            region.prove(NoRerun(TOGETHER if is_one_of_several() else RUN_ONCE))
            return
        try:
            if self._training.report is None:
                self._show_opening(region.report)
            self._training.replays.prove_whole(region, error, stopped=self._stopped)
        except Exception:
            self._training.guard.fail()

    def _prove(self, training: Training, fault: Fault, *, by_itself: bool = False) -> None:
        """The program is about to make a bad step, or not to make it: what led to it can still be run again.

        `by_itself`: it ends itself then.
        """
        assert self._region is not None
        self._region.end(early=True)
        try:
            training.replays.look_at_loading(self._region, fault)
        except Exception:
            # what is known is told all the same
            training.guard.fail()
        except KeyboardInterrupt:
            pass
        try:
            self.explained(self._region.report, by_itself=by_itself)
            training.replays.prove(self._region, fault)
        except Exception:
            training.guard.fail()
        if by_itself:
            self.proved(self._region.report)

    def _debugger(self) -> Callable[[], None] | None:
        """What opens the debugger at the program's line, where that was asked for."""
        asked = self.options.pdb and self._concert is None
        frame = user_frame(sys._getframe()) if asked else None  # pyright: ignore[reportPrivateUsage]
        return None if frame is None else debugger(frame)

    def _spoilt(self, report: Report) -> BaseException | None:
        """At a bad step of a program that is watched: the exception to end the run with, if it is to end."""
        if self._reported or not self._ends_run():
            return None
        self._end_all(report.findings)
        return self._ending(report.findings[0] if report.findings else None)

    def _errors(self, capture: Capture) -> tuple[Finding, ...]:
        assert self._region is not None
        report = self._region.preview(capture)
        if self.options.redact:
            from whynan.report.redaction import redacted

            # the program's traceback ends with the message of one of them
            report = redacted(report, None if self._recording is None else self._recording.names)
        return tuple(f for f in report.findings if f.severity == "error")

    def _final(self, report: Report) -> Report:
        own = rank()
        alone = own is None or self._concert is not None
        told = [] if own is None or alone else [Note.create("one_of_several", rank=own.number, world=own.world)]
        for note in (*told, *self._notes):
            report = with_note(report, note)
        if report.verdict == "clean" and not report.coverage.events and (own is not None or has_started_others()):
            report = with_note(report, Note.create("no_others")).model_copy(update={"verdict": "inconclusive"})
        return self._ended(report)

    def _exit_status(self, report: Report) -> int:
        strict = self.options.strict and report.verdict == "damaged"
        return 1 if strict else report.run.exit_status.whynan


def _of_ranks(ranks: Report, own: Report) -> Report:
    """The report of the ranks that a program has started, with what was found in the program itself."""
    run = ranks.run.model_copy(update={"exception": own.run.exception or ranks.run.exception})
    return merge_reports(ranks.model_copy(update={"run": run}), own)


def _with_exception(report: Report, error: BaseException) -> Report:
    """The report of a program that an exception has ended, which whatever looked at its start may not have seen."""
    if report.run.exception is not None:
        return report
    status = report.run.exit_status.model_copy(update={"script": 1})
    run = report.run.model_copy(update={"exception": exception_text(error), "exit_status": status})
    return report.model_copy(update={"run": run})
