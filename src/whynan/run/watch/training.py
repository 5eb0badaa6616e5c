"""A training that is watched: the guard, the replay of a bad step, and the report of it."""

from __future__ import annotations

import functools
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from whynan.capture.ranks import is_one_of_several
from whynan.errors import NestedTraceError, NonFiniteError, UsageError
from whynan.records import Coverage, ExitStatus, Note, Report, Run
from whynan.rules.catalogue import readings
from whynan.run.output.delivery import Display
from whynan.run.pipeline import build_report, fold_report, merge_reports
from whynan.run.proof.proving import is_interrupted, prove_fixes
from whynan.run.proof.reruns import INTERRUPTED, NoRerun
from whynan.run.region import STEPPED_ASIDE, refuses_another, scope_of
from whynan.run.versions import versions
from whynan.run.watch.evaluations import EvaluationWatch
from whynan.run.watch.metrics import Metrics, as_step
from whynan.run.watch.replays import Replays
from whynan.traces import Trace
from whynan.traces.format import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from whynan.capture.torch.sinks.gradients import Fault
    from whynan.config import Options
    from whynan.run.suppressions import Allowance
    from whynan.run.watch.metrics import MetricSink
    from whynan.source.decisions import Decision

_active: list[Training] = []


class Training:
    """The watch over the optimizers of a program; `ended` is given the report of its first bad step.

    What `ended` gives is raised at that step, before it has moved a weight. `traced`: so many steps are traced by
    somebody else, and are only counted here; `aside` is called before a replay is looked at.
    `only`: the optimizers to watch; all where there are none. `metrics`: what is given the numbers of each step.
    """

    def __init__(
        self,
        options: Options,
        *,
        command: str,
        ended: Callable[[Report], BaseException | None],
        aside: Callable[[], None] = lambda: None,
        traced: int = 0,
        only: Sequence[Any] = (),
        metrics: Sequence[MetricSink] = (),
    ) -> None:
        from whynan.replay.checkpoint import Marks
        from whynan.training.guard import Guard
        from whynan.training.updates import WatchDetectors

        self._allowed: list[Allowance] = []
        self.options = options
        self.command = command
        self.marks = Marks(keeps_batches=options.attribute)
        self.guard = Guard(
            explain=self._report_of,
            deliver=self._deliver,
            marking=self.marks,
            after=traced,
            only=only,
            late=not traced,
            deferred=options.sync == "deferred",
            told=Metrics(metrics).tell if metrics else None,
            detectors=WatchDetectors(readings("watch", options.allow), lambda: scope_of(options, self._allowed)),
        )
        self.guard.detectors.look_into = self._doubted
        self._beneath: list[Report] = []
        """What was found wrong in steps that nothing bad was in."""
        self.report: Report | None = None
        self._unproved: tuple[Report, Fault] | None = None
        """What is known of a bad step while its fixes are being proved."""
        self._ended = ended
        self.suspicion: Callable[[], AbstractContextManager[None]] = nullcontext
        """Around what looks into a bad step: the other ranks of a run hold theirs meanwhile."""
        self.replays = Replays(options, command, self.guard, self.marks)
        self.beside: EvaluationWatch | None = None
        """What the program does beside its steps, where that is looked at."""
        self.yields = self.stepped_aside = False
        self.redacts = True
        """Whether the report leaves out what is private; a whole program's is made so where it is delivered."""
        self.repeated = 0
        """Bad steps after the first."""
        self._aside = aside
        self.unexplained: Callable[[Fault], None] = lambda _: None
        """Called with the first bad step where there is no faithful replay of it."""

    def look_beside(self) -> None:
        """Look at what the program does beside its steps, too; to be called before it begins."""
        self.beside = EvaluationWatch(self)

    def set_aside(self) -> None:
        """End what looks at the first steps."""
        self._aside()

    def announce(self, report: Report, *, by_itself: bool = False) -> None:
        """Tell whoever waits for a proof what is bad; `by_itself`: the program will end itself."""
        if self.replays.audience is not None:
            self.replays.audience.explained(self._public(report), by_itself=by_itself)

    def announce_proof(self, report: Report) -> None:
        """Tell whoever has waited for it what was proved, before the program ends itself."""
        if self.replays.audience is not None:
            self.replays.audience.proved(self._public(report))

    def _public(self, report: Report) -> Report:
        if not (self.redacts and self.options.redact):
            return report
        from whynan.report.redaction import redacted

        return redacted(fold_report(report))

    def is_allowed(self, made: Decision) -> bool:
        """Whether the program goes on to do what it has decided: what ends it is for itself to say."""
        return made.does == "ends" and self.options.on_nonfinite in ("stop", "continue", "skip")

    def end_with(self, report: Report) -> BaseException | None:
        """What something that was found beside the steps is to end the program with."""
        ending = self._ended(report)
        if ending is None and self._raises():
            return NonFiniteError(report.findings[0])
        return ending

    def _raises(self) -> bool:
        """Whether a finding is raised: those beside one of several processes would wait for it."""
        return self.options.on_nonfinite == "raise" and not is_one_of_several()

    def begin(self, *, beside: bool = False) -> None:
        """Watch from here on, and `beside` the steps; raises ``NestedTraceError`` in a trace or in another watch.

        But the watch over a whole program gives way to the program's own.
        """
        if any(not other.yields for other in _active) or refuses_another():
            raise NestedTraceError()
        for other in tuple(_active):
            other.end()
            other.stepped_aside = True
        _active.append(self)
        try:
            if beside:
                self.look_beside()
            self.guard.install()
        except Exception:
            self.end()
            self.guard.fail()

    def end(self, *, pauses: bool = False) -> BaseException | None:
        """Watch no further, or not until it begins again, where it `pauses`.

        Gives what a bad step that is found only now is to end with.
        """
        ending = None
        if self in _active:
            _active.remove(self)
        try:
            if self.beside is not None:
                self.beside.settle()
            ending = self.guard.pending.read_all() if self.guard.on else None
            self.guard.remove()
            if not pauses:
                self.guard.detectors.forget()
            self.marks.clear()
        except Exception:
            self.guard.fail()
            # once more: a door that stays would outlive the watch
            self.guard.remove()
        return ending

    def report_after_trace(self, traced: Report) -> Report:
        """The report of a run whose first steps were traced: that of its bad step, if there was one."""
        if self.report is None and self._unproved is not None:
            # the process is ended in the midst of the proof
            report, fault = self._unproved
            self.report = self._public(self._with_history(prove_fixes(report, NoRerun(INTERRUPTED)), fault))
        pieces = [*self._beneath, *([] if self.beside is None else self.beside.pieces())]
        if self.report is not None:
            return self._with_silent(merge_reports(self._step_report(), traced, *pieces))
        if (not self.guard.watched and not self.stepped_aside) or traced.verdict == "nonfinite":
            return self._with_silent(merge_reports(traced, *pieces))
        return self._with_silent(merge_reports(_replayed(self._watched(traced), pieces), *pieces))

    def current_report(self) -> Report:
        """The report as it stands: of the first bad step, and how many came after it; or that there was none."""
        pieces = [*self._beneath, *([] if self.beside is None else self.beside.pieces())]
        told = self._step_report() if self.report is not None else _replayed(self._step_report(), pieces)
        return self._with_silent(merge_reports(told, *pieces))

    def _with_silent(self, report: Report) -> Report:
        """A report with the silent damage of the steps that were watched, as far as it does not tell of it already."""
        if not self.guard.detectors.log.found or any(f.severity == "error" for f in report.findings):
            return report
        known = {(f.rule, f.site) for f in report.damaging}
        trace = Trace([], [], Coverage(), silent=[replace(s) for s in self.guard.detectors.log.found])
        found = build_report(
            trace,
            command=self.command,
            flags={},
            device=report.run.device,
            allowances=self._allowed,
            baseline=self.replays.baseline,
        )
        new = tuple(f for f in found.damaging if (f.rule, f.site) not in known)
        if self.redacts and self.options.redact:
            from whynan.report.redaction import redacted

            found = redacted(found.model_copy(update={"damaging": new}))
            new = found.damaging
        return merge_reports(
            report, found.model_copy(update={"damaging": new, "verdict": "damaged" if new else "clean"})
        )

    def _step_report(self) -> Report:
        if self.report is None:
            return self._watched(self._new_report("clean", ()))
        if not self.repeated:
            return self._counted(self.report)
        coverage = self.report.coverage.with_notes(Note.create("more_bad_steps", steps=self.repeated))
        return self._counted(self.report.model_copy(update={"coverage": coverage}))

    def _counted(self, report: Report) -> Report:
        """A report with the steps that a loss scaler has skipped, in what was traced or since."""
        skipped = max(report.coverage.skipped_steps, self.guard.passed_over)
        coverage = report.coverage.model_copy(update={"skipped_steps": skipped})
        return report.model_copy(update={"coverage": coverage})

    def _watched(self, report: Report) -> Report:
        """A report with what is known of the steps that were watched, none of which was bad."""
        seen: list[Note] = [FAILED] if self.guard.failed else []
        if self.stepped_aside:
            seen.append(STEPPED_ASIDE)
        seen.append(Note.create("watched", steps=self.guard.watched))
        verdict, run, graphs = report.verdict, report.run, self._of_graphs()
        if spoilt := self.guard.count_bad_parameters():
            verdict = "inconclusive"
            run = run.model_copy(update={"exit_status": run.exit_status.model_copy(update={"whynan": 1})})
            seen.append(Note.create("spoilt_at_the_end", parameters=spoilt, graphs=bool(graphs)))
        coverage = report.coverage.with_notes(*seen, *graphs)
        return self._counted(report.model_copy(update={"verdict": verdict, "coverage": coverage, "run": run}))

    def _of_graphs(self) -> tuple[Note, ...]:
        """What is said of CUDA graphs."""
        count = self.guard.graph_replays.count
        return (Note.create("graph_replays", replays=count),) if count else ()

    def _deliver(self, report: Report | None, fault: Fault) -> BaseException | None:
        """Tell of the first bad step; gives what to raise at it."""
        if report is None and self.report is None:
            # what was born is meant
            return None
        alone = not is_one_of_several()
        if self.options.on_nonfinite == "skip" and not fault.lag and (alone or self.guard.agreed is not None):
            from whynan.capture.torch.sinks.gradients import leave_out

            if fault.optimizer is not None:
                leave_out(fault.optimizer)
            self.guard.here.is_left_out = True
        if report is None:
            self.repeated += 1
            return None
        report = self._public(report)
        self.report = report
        if report.verdict == "inconclusive":
            self.unexplained(fault)
        ending = self._ended(report)
        if ending is None and self._raises() and report.findings:
            return NonFiniteError(report.findings[0])
        if ending is None and is_interrupted(report):
            # it is for the program, which would go on
            return KeyboardInterrupt()
        return ending

    def _report_of(self, fault: Fault) -> Report | None:
        """The report of a bad step; None but for the first, and where all that was born is allowed."""
        if self.report is not None:
            return None
        self._aside()
        # of what is looked at in advance nobody is told before it counts
        ahead = fault.ahead or self.guard.here.probes is not None

        def explained(report: Report) -> None:
            self._unproved = report, fault
            if not ahead:
                self.announce(self._with_history(report, fault))

        with self.suspicion():
            found = self.replays.explain_fault(fault, explained)
        self._unproved = None
        if isinstance(found, tuple):
            found = self._new_report("inconclusive", found)
        return None if found is None else self._with_history(found, fault)

    def _doubted(self, fault: Fault) -> bool:
        """Look into a step in which nothing is bad; whether something was wrong in it."""
        if self.report is not None:
            return True
        self._aside()
        found = self.replays.explain_doubt(fault)
        if found is None:
            return False
        if self.redacts and self.options.redact:
            from whynan.report.redaction import redacted

            found = redacted(found)
        self._beneath.append(found)
        if is_interrupted(found):
            raise KeyboardInterrupt
        return True

    def _with_history(self, report: Report, fault: Fault) -> Report:
        history = tuple(as_step(entry) for entry in self.guard.history.steps_of(fault.optimizer))
        run = report.run.model_copy(update={"history": history})
        coverage = report.coverage.with_notes(*self._of_graphs())
        return self._counted(report.model_copy(update={"run": run, "coverage": coverage}))

    def _new_report(self, verdict: Any, notes: tuple[Note, ...]) -> Report:
        whynan = 0 if verdict == "clean" else 1
        status = ExitStatus(script=None, whynan=whynan)
        run = Run(command=self.command, exit_status=status, versions=versions(), device=self.guard.device())
        return Report(verdict=verdict, run=run, coverage=Coverage(typed_notes=notes))


def _replayed(report: Report, pieces: Sequence[Report]) -> Report:
    """A report with the replay that explained what was found beside the steps."""
    explained = next((p for p in pieces if p.run.replay.faithful), None)
    if explained is None:
        return report
    return report.model_copy(update={"run": report.run.model_copy(update={"replay": explained.run.replay})})


class Stop(BaseException):
    """Ends the block of a watch at a bad step, before it has moved a weight."""


def _status(error: BaseException | None) -> int | None:
    """The exit status that an exception would give a program; None for one that a watch has raised."""
    return None if isinstance(error, (Stop, NonFiniteError)) else int(error is not None)


class Watch:
    """A block of a program whose optimizer steps are watched; ``report`` is there after it, or after a bad step.

    As a decorator, a step function that is watched whenever it runs: a bad step raises ``NonFiniteError`` there.
    """

    def __init__(self, options: Options, optimizers: Sequence[Any] = (), *, metrics: Sequence[MetricSink] = ()) -> None:
        self._options = options
        self._optimizers = optimizers
        self._metrics = metrics
        self._training: Training | None = None
        self._display = Display(lambda: sys.stdout, quiet=bool(options.quiet))
        self._stop: Stop | None = None
        self._ended = False
        self._status: int | None = 0
        """What the program would end with, as the block or the step function has: None where this watch stopped it."""

    def __enter__(self) -> Self:
        if self._training is not None:
            raise UsageError("this watch has already run", "make a new one: with whynan.watch(optimizer): ...")
        training = self._begin(beside=True)
        try:
            training.marks.begin()
        except Exception:
            training.guard.fail()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        assert self._training is not None
        beside = self._training.beside
        if beside is not None and isinstance(error, Exception):
            beside.on_exception(error)
        ending = self._training.end()
        self._ended = True
        self._status = _status(error or ending)
        if error is None and ending is not None and ending is not self._stop:
            raise ending
        return error is not None and error is self._stop

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, watched."""
        from whynan.replay.plan import CallPlan
        from whynan.replay.snapshot import rng

        training = self._begin(self._raised)
        training.end()
        self._ended = True

        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            if training.replays.called:
                # it calls itself
                return function(*args, **kwargs)
            training.replays.called = [CallPlan(function, args, kwargs, rng())]
            training.begin()
            ending = None
            try:
                out = function(*args, **kwargs)
            except BaseException as error:
                self._status = _status(error)
                raise
            finally:
                ending = training.end(pauses=True)
                training.replays.called = []
            self._status = _status(ending)
            if ending is not None:
                raise ending
            return out

        return step

    @property
    def report(self) -> Report:
        """What was found; raises ``UsageError`` while the block still runs and nothing was."""
        if self._training is None or (self._training.report is None and not self._ended):
            raise UsageError("the watch has not ended", "read .report after the with block")
        report = fold_report(self._training.current_report())
        status = report.run.exit_status.model_copy(update={"script": self._status})
        return report.model_copy(update={"run": report.run.model_copy(update={"exit_status": status})})

    def _begin(
        self, ended: Callable[[Report], BaseException | None] | None = None, *, beside: bool = False
    ) -> Training:
        made = Training(
            self._options,
            command="watch",
            ended=ended or self._stopped,
            only=self._optimizers,
            metrics=self._metrics,
        )
        self._training = made
        made.replays.audience = self._display
        made.begin(beside=beside)
        return made

    def _stopped(self, report: Report) -> BaseException | None:
        self._display.finish(fold_report(report))
        if self._options.on_nonfinite != "stop" or is_one_of_several():
            return None
        self._stop = Stop()
        return self._stop

    def _raised(self, report: Report) -> BaseException | None:
        self._display.finish(fold_report(report))
        stops = self._options.on_nonfinite == "stop" and report.findings and not is_one_of_several()
        return NonFiniteError(report.findings[0]) if stops else None
