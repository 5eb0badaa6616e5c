"""A training that is watched: the guard, the replay of a bad step, and the report of it."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from whynan.errors import NestedTraceError, NonFiniteError, UsageError
from whynan.records import Coverage, ExitStatus, Replay, Report, Run, Step
from whynan.report.values import count_text
from whynan.session.region import STEPPED_ASIDE, Region, refuses_another
from whynan.session.watching import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import TracebackType

    from whynan.capture.torch.judging import Fault
    from whynan.capture.torch.replay import Way
    from whynan.config import Options
    from whynan.traces.writing import TraceWriter


_active: list[Training] = []


class Training:
    """The watch over the optimizers of a program; `ended` is given the report of its first bad step.

    What `ended` gives is raised at that step, before it has moved a weight. `traced`: so many steps are traced by
    somebody else, and are only counted here; `aside` is called before a replay is looked at.
    `only`: the optimizers to watch; all where there are none.
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
    ) -> None:
        from whynan.capture.torch.marks import Marks
        from whynan.capture.torch.watch import Guard

        self.options = options
        self.command = command
        self.marks = Marks()
        self.guard = Guard(explain=self._explained, deliver=self._deliver, marking=self.marks, after=traced, only=only)
        self.report: Report | None = None
        self._ended = ended
        self._traced = traced
        self.called: list[Way] = []
        """The program's own step function, where it is known."""
        self.yields = self.stepped_aside = False
        self.redacts = True
        """Whether the report leaves out what is private; a whole program's is made so where it is delivered."""
        self.recording: Callable[[], TraceWriter | None] = lambda: None
        """Gives what writes the trace of a replay to disk."""
        self.repeated = 0
        """Bad steps after the first."""
        self._aside = aside
        self.unexplained: Callable[[Fault], None] = lambda _: None
        """Called with the first bad step where there is no faithful replay of it."""

    def begin(self) -> None:
        """Watch from here on; raises ``NestedTraceError`` inside of a trace or of another watch.

        But the watch over a whole program gives way to the program's own.
        """
        if any(not other.yields for other in _active) or refuses_another():
            raise NestedTraceError()
        for other in tuple(_active):
            other.end()
            other.stepped_aside = True
        _active.append(self)
        try:
            self.guard.install()
        except Exception:
            self.end()
            self.guard.fail()

    def end(self) -> None:
        """Watch no further."""
        if self in _active:
            _active.remove(self)
        try:
            self.guard.remove()
            self.marks.clear()
        except Exception:
            self.guard.fail()
            # once more: a door that stays would outlive the watch
            self.guard.remove()

    def after(self, traced: Report) -> Report:
        """The report of a run whose first steps were traced: that of its bad step, if there was one."""
        if self.report is not None:
            return self.told()
        if (not self.guard.watched and not self.stepped_aside) or traced.verdict == "nonfinite":
            return traced
        return self._watched(traced)

    def told(self) -> Report:
        """The report as it stands: of the first bad step, and how many came after it; or that there was none."""
        if self.report is None:
            return self._watched(self._told("clean", ()))
        if not self.repeated:
            return self.report
        note = f"{count_text(self.repeated, 'more step')} bad after that, not looked into"
        coverage = self.report.coverage
        notes = {"notes": (*coverage.notes, note)}
        return self.report.model_copy(update={"coverage": coverage.model_copy(update=notes)})

    def _watched(self, report: Report) -> Report:
        """A report with what is known of the steps that were watched, none of which was bad."""
        seen = [note for note in report.coverage.notes if not note.startswith(f"looked at up to step {self._traced},")]
        if self.stepped_aside:
            seen.append(STEPPED_ASIDE)
        watched = count_text(self.guard.watched, "step")
        seen.append(f"{watched} watched: the loss and the gradients of each were finite")
        verdict, run = report.verdict, report.run
        if spoilt := self.guard.spoilt():
            verdict = "inconclusive"
            run = run.model_copy(update={"exit_status": run.exit_status.model_copy(update={"whynan": 1})})
            seen.append(f"{count_text(spoilt, 'parameter')} bad after the last step: spoilt by that step")
        coverage = report.coverage.model_copy(update={"notes": tuple(seen)})
        return report.model_copy(update={"verdict": verdict, "coverage": coverage, "run": run})

    def _deliver(self, report: Report | None, fault: Fault) -> BaseException | None:
        """Tell of the first bad step; gives what to raise at it."""
        if report is None and self.report is None:
            # what was born is meant
            return None
        if self.options.on_nonfinite == "skip":
            # an optimizer passes over what has no gradient
            for parameter in fault.parameters():
                parameter.grad = None
        if report is None:
            self.repeated += 1
            return None
        if self.redacts and self.options.redact:
            from whynan.report.redaction import redacted

            report = redacted(report)
        self.report = report
        if report.verdict == "inconclusive":
            self.unexplained(fault)
        ending = self._ended(report)
        if ending is None and self.options.on_nonfinite == "raise" and report.findings:
            return NonFiniteError(report.findings[0])
        return ending

    def _explained(self, fault: Fault) -> Report | None:
        """The report of a bad step; None but for the first, and where all that was born is allowed."""
        if self.report is not None:
            return None
        found = self._found(fault)
        return None if found is None else self._with_history(found, fault)

    def _found(self, fault: Fault) -> Report | None:
        """The report of a faithful replay, or that there is none."""
        from whynan.capture.torch.replay import compiles, replay, ways

        self._aside()
        refused: list[str] = []
        for way in [*self.called, *ways(self.marks.kept())]:
            # what was compiled is looked at operation by operation where it runs eagerly
            for eager in (True, False) if compiles() else (False,):
                watched = Watched(recording=self.recording())
                region = Region(self.options, command=self.command, watched=watched, quiet=True)
                looked = lambda region=region: self._looked(region, fault)  # noqa: E731
                outcome = replay(way, self.guard, fault, looked, eager=eager)
                where = f"{'eagerly ' if eager else ''}{way.where}"
                if outcome.judged is None:
                    refused.append(f"no replay {where}: {outcome.why}")
                elif eager and outcome.judged.is_good:
                    refused.append(f"replayed {where}, the step is finite: the compiler is the suspect")
                elif not outcome.judged.same_as(fault.judged):
                    refused.append(f"no replay {where}: other losses or gradients than in the step itself")
                elif not region.report.findings and any(" is allowed" in n for n in region.report.coverage.notes):
                    return None
                elif not region.report.findings:
                    refused.append(f"no replay {where}: nothing bad was born in it")
                else:
                    said = (*_spoilt(fault), *(note for note in refused if note.endswith("suspect")))
                    return _replayed(region.report, Replay(kind=way.kind, faithful=True, why=_same(fault, where)), said)
        hint = f"whynan run --start-step {fault.step} looks at every operation from that step on, in another run"
        if not refused:
            refused.append("no replay: what led to the step stands in no code that can be run again from its source")
        return self._told("inconclusive", (_bad(fault), *_spoilt(fault), *refused, hint))

    def _with_history(self, report: Report, fault: Fault) -> Report:
        history = tuple(
            Step(step=e.step, loss=e.loss, norm=e.norm, scale=e.scale, skipped=e.skipped)
            for e in self.guard.history.of(fault.optimizer)
        )
        return report.model_copy(update={"run": report.run.model_copy(update={"history": history})})

    @contextmanager
    def _looked(self, region: Region, fault: Fault) -> Generator[None]:
        """A region around a replay: the program goes on after it."""
        with region:
            region.watching.tell(lambda capture: capture.begin_at(fault.step))
            try:
                yield
            finally:
                region.end(early=True)

    def _told(self, verdict: Any, notes: tuple[str, ...]) -> Report:
        whynan = 0 if verdict == "clean" else 1
        run = Run(command=self.command, exit_status=ExitStatus(script=None, whynan=whynan), device="cpu")
        return Report(verdict=verdict, run=run, coverage=Coverage(events=0, eager=0, compiled_regions=0, notes=notes))


def _replayed(report: Report, replay: Replay, notes: tuple[str, ...]) -> Report:
    coverage = report.coverage.model_copy(update={"notes": (*report.coverage.notes, *notes)})
    run = report.run.model_copy(update={"replay": replay})
    return report.model_copy(update={"run": run, "coverage": coverage})


def _spoilt(fault: Fault) -> tuple[str, ...]:
    """What is to be said of weights that are bad already."""
    if not fault.judged.spoilt:
        return ()
    count = count_text(len(fault.judged.spoilt), "parameter")
    hint = f"whynan run --start-step {max(fault.step - 1, 1)} looks at every operation from that step on"
    return (f"{count} bad before step {fault.step}: by the step before it, or earlier; {hint}",)


def _same(fault: Fault, where: str) -> str:
    losses, bad = len(fault.judged.losses), len(fault.judged.bad)
    what = [count_text(losses, "loss", "losses")] if losses else []
    what += [count_text(bad, "bad gradient")] if bad else []
    return f"{' and '.join(what)} identical, run again {where}"


def _bad(fault: Fault) -> str:
    what = ["the loss"] if fault.judged.bad_loss else []
    what += [count_text(len(fault.judged.bad), "gradient")] if fault.judged.bad else []
    skipped = f", which a loss scaler has skipped {fault.skipped} times on end" if fault.skipped > 1 else ""
    return f"NaN or Inf in {' and '.join(what)} at step {fault.step}{skipped}"


class Stop(BaseException):
    """Ends the block of a watch at a bad step, before it has moved a weight."""


class Watch:
    """A block of a program whose optimizer steps are watched; ``report`` is there after it, or after a bad step.

    As a decorator, a step function that is watched whenever it runs: a bad step raises ``NonFiniteError`` there.
    """

    def __init__(self, options: Options, optimizers: Sequence[Any] = ()) -> None:
        self._options = options
        self._optimizers = optimizers
        self._training: Training | None = None
        self._report: Report | None = None
        self._stop: Stop | None = None
        self._ended = False

    def __enter__(self) -> Self:
        if self._training is not None:
            raise UsageError("this watch has already run", "make a new one: with whynan.watch(optimizer): ...")
        training = self._begin()
        try:
            training.marks.begin()
        except Exception:
            training.guard.fail()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        assert self._training is not None
        self._training.end()
        self._ended = True
        return error is not None and error is self._stop

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, watched."""
        from whynan.capture.torch.replay import Called
        from whynan.capture.torch.state import rng

        training = self._begin(self._raised)
        training.end()
        self._ended = True

        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            if training.called:
                # it calls itself
                return function(*args, **kwargs)
            training.called = [Called(function, args, kwargs, rng())]
            training.begin()
            try:
                return function(*args, **kwargs)
            finally:
                training.end()
                training.called = []

        return step

    @property
    def report(self) -> Report:
        """What was found; raises ``UsageError`` while the block still runs and nothing was."""
        if self._training is None or (self._training.report is None and not self._ended):
            raise UsageError("the watch has not ended", "read .report after the with block")
        return self._training.told()

    def _begin(self, ended: Callable[[Report], BaseException | None] | None = None) -> Training:
        made = Training(self._options, command="watch", ended=ended or self._stopped, only=self._optimizers)
        self._training = made
        made.begin()
        return made

    def _show(self, report: Report) -> None:
        if not self._options.quiet:
            report.show()

    def _stopped(self, report: Report) -> BaseException | None:
        self._show(report)
        if self._options.on_nonfinite != "stop":
            return None
        self._stop = Stop()
        return self._stop

    def _raised(self, report: Report) -> BaseException | None:
        self._show(report)
        stops = self._options.on_nonfinite == "stop" and report.findings
        return NonFiniteError(report.findings[0]) if stops else None
