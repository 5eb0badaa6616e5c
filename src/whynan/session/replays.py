"""The report of what led to a bad step, by running that again; or why there is none."""

from __future__ import annotations

import functools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from whynan.capture.ranks import TOGETHER, is_one_of_several
from whynan.records import Note, Replay
from whynan.session.proving import RERUN, Once, RunOnce, proved, with_surroundings
from whynan.session.region import Region, refuses_another
from whynan.session.retelling import Replaying
from whynan.session.watching import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from whynan.capture.torch import Capture
    from whynan.capture.torch.judging import Fault
    from whynan.capture.torch.keeping import Keeper
    from whynan.capture.torch.marks import Marks
    from whynan.capture.torch.replay import Outcome
    from whynan.capture.torch.watch import Guard
    from whynan.capture.torch.ways import Tailed, Way
    from whynan.config import Options
    from whynan.records import Report, Site
    from whynan.session.baseline import Baseline
    from whynan.session.proving import Keep
    from whynan.traces.writing import TraceWriter
    from whynan.verify.visits import Visits

NOT_ASKED = "no proof was asked for (--no-proof)"

_LONG = 5.0
"""Seconds that the program took from a mark to its step, beyond which a shorter way is gone first."""

NO_WAY = "what led to the step stands in no code that can be run again from its source"


class Replays:
    """The replays of one training."""

    def __init__(self, options: Options, command: str, guard: Guard, marks: Marks) -> None:
        self.called: list[Way] = []
        """The program's own step function, where it is known."""
        self.recording: Callable[[], TraceWriter | None] = lambda: None
        """Gives what writes the trace of a replay to disk."""
        self.baseline: Baseline | None = None
        self.keeper: Keeper | None = None
        """Keeps the operations of a replay that bear bad numbers."""
        self.visits: dict[Site, Visits] = {}
        """What the function of a finding read, where operations are kept: of the site."""
        self._options = options
        self.command = command
        self._guard = guard
        self._marks = marks

    def region(self) -> Region:
        """What looks at a piece of the program."""
        watched = Watched(recording=self.recording(), keeper=self.keeper)
        made_here = Region(self._options, command=self.command, watched=watched, quiet=True)
        made_here.baseline = self.baseline
        return made_here

    def of(self, fault: Fault) -> Report | tuple[Note, ...] | None:
        """The report of a faithful replay; or why there is none. None where all that was born is allowed."""
        from whynan.capture.torch.ways import ways

        refused = [Note.of("gone_on")] if fault.lag else []
        if refuses_another():
            refused.append(Note.of("another_thread"))
        if is_one_of_several():
            refused.append(Note.of("replay_together"))
        left = fault.raised.frames if fault.raised is not None else ()
        tried = [] if refused else [*self.called, *ways(self._marks.kept(), left)]
        suspected: list[Note] = []
        for way, eager, region, outcome in self._runs(fault, tried):
            why = ""
            if outcome.judged is None:
                why = outcome.why
            elif eager and outcome.judged.is_good:
                suspected.append(Note.of("compiler_suspected", way=way.where, eager=eager))
            elif not outcome.judged.same_as(fault.judged):
                why = "other losses or gradients than in the step itself"
            elif not region.report.findings and region.report.coverage.notes_of("allowed"):
                return None
            elif not region.report.findings and fault.optimizer is None and fault.raised is None:
                # an Inf that the program itself has written
                return None
            elif not region.report.findings:
                why = "nothing bad was born in it"
            else:
                said = (*suspected[:1], *_spoilt(fault))
                report = with_surroundings(region.report, region.trace)
                replay_ = Replay(kind=way.kind, faithful=True, typed_why=_same(fault, way, eager=eager))
                report = _replayed(report, replay_, said)
                return self._proved(report, way, fault, eager=eager, keep=self._keep())
            if why:
                refused.append(Note.of("no_replay", way=way.where, eager=eager, why=why))
        hint = Note.of("start_step_advice", step=fault.step)
        if fault.beside:
            refused = [Note.of("another_optimizer")]
        if not refused and not suspected:
            refused.append(Note.of("no_way"))
        advice = (Note.of("sync_advice"),) if fault.lag else ()
        return (_bad(fault), *_lag_note(fault), *suspected[:1], *_spoilt(fault), *refused, *advice, hint)

    def doubted(self, fault: Fault) -> Report | None:
        """The report of a faithful replay of a step in which nothing is bad, if something in it is wrong."""
        from whynan.capture.torch.ways import ways

        if refuses_another() or is_one_of_several():
            return None
        for way, eager, region, outcome in self._runs(fault, [*self.called, *ways(self._marks.kept())]):
            if outcome.judged is None or not outcome.judged.same_as(fault.judged):
                continue
            if not region.report.damaging or region.report.findings:
                return None
            report = with_surroundings(region.report, region.trace)
            replay_ = Replay(kind=way.kind, faithful=True, typed_why=_same(fault, way, eager=eager))
            report = _replayed(report, replay_, ())
            return self._proved(report, way, fault, eager=eager)
        return None

    def _runs(self, fault: Fault, tried: Iterable[Way]) -> Generator[tuple[Way, bool, Region, Outcome]]:
        """Run what led to a step again, one way after the other, until one is enough."""
        from whynan.capture.torch.replay import compiles, replay

        for way in tried:
            # what was compiled is looked at operation by operation where it runs eagerly
            for eager in (True, False) if compiles() else (False,):
                region = self.region()
                looked = functools.partial(self._looked, region, fault, way)
                yield way, eager, region, replay(way, self._guard, fault, looked, eager=eager)

    def step(self, optimizer: Any) -> Fault:
        """The step that an optimizer is about to make."""
        from whynan.capture.torch.judging import Fault, judge

        return Fault(optimizer, self._guard.attempts(optimizer) + 1, judge(optimizer, self._guard.here.losses))

    def prove(self, region: Region, fault: Fault) -> None:
        """Prove the fixes of what a region has found that has looked at a bad step as it was made, and has ended."""
        if not self._options.prove or is_one_of_several():
            region.prove(Once(TOGETHER if self._options.prove else NOT_ASKED))
            return
        from whynan.capture.torch.replay import compiles
        from whynan.capture.torch.ways import ways

        why = RunOnce(f"{NO_WAY}: {RERUN}")
        for way in _shortest(list(ways(self._marks.kept()))):
            with self._again(way, fault, eager=compiles(), advised=True).unheard() as again:
                unfaithful = again.unfaithful()
                if unfaithful is None:
                    region.prove(again, keep=self._keep())
                    return
                why = unfaithful
        region.prove(Once(why))

    def _keep(self) -> Keep | None:
        return None if self.keeper is None else self.visits.__setitem__

    def _proved(self, report: Report, way: Way, fault: Fault, *, eager: bool, keep: Keep | None = None) -> Report:
        if not self._options.prove:
            return proved(report, Once(NOT_ASKED))
        return self._again(way, fault, eager=eager).proved(report, keep=keep)

    def _again(self, way: Way, fault: Fault, *, eager: bool, advised: bool = False) -> Replaying:
        def unrecorded() -> Region:
            return Region(self._options, command=self.command, watched=Watched(), quiet=True)

        return Replaying(way, self._guard, fault, eager=eager, region=unrecorded, looked=self._looked, advised=advised)

    @contextmanager
    def _looked(self, region: Region, fault: Fault, way: Way) -> Generator[None]:
        """A region around a replay: the program goes on after it."""
        from whynan.capture.torch.inherited import Inherited

        def tell(capture: Capture) -> None:
            capture.begin_at(fault.step)
            if fault.optimizer is not None:
                capture.begin_with(Inherited(fault))
                capture.begin_lost(fault.scale_fall)
            if way.amid is not None:
                capture.begin_amid(way.amid)
            for batch, came in way.batches:
                capture.tracer.origins.note(batch, came.source(), "batch")

        with region:
            region.watching.tell(tell)
            try:
                yield
            finally:
                if fault.optimizer is None:
                    here = self._guard.here
                    region.watching.tell(lambda capture: capture.nothing_follows(here.seen, here.raised))
                    here.seen = here.raised = None
                region.end(early=True)


def _shortest(found: list[Tailed]) -> list[Tailed]:
    """Ways that are gone many times, for a proof: what runs the most first, unless that takes long."""
    now = time.monotonic()
    return sorted(found, key=lambda way: now - way.began if now - way.began > _LONG else 0.0)


def _replayed(report: Report, replay: Replay, notes: tuple[Note, ...]) -> Report:
    coverage = report.coverage.with_notes(*notes)
    run = report.run.model_copy(update={"replay": replay})
    return report.model_copy(update={"run": run, "coverage": coverage})


def _spoilt(fault: Fault) -> tuple[Note, ...]:
    """What is to be said of weights that are bad already."""
    if not fault.judged.spoilt:
        return ()
    from whynan.capture.torch.inherited import state_at

    spoilt = Note.of("spoilt_before", parameters=len(fault.judged.spoilt), step=fault.step)
    if fault.step == 1:
        return (spoilt,)
    state = state_at(fault.optimizer, fault.judged.spoilt[0])
    return (spoilt, Note.of("optimizer_state", state=state)) if state else (spoilt,)


def _same(fault: Fault, way: Way, *, eager: bool) -> Note:
    """What a replay has given again."""
    trains = fault.optimizer is not None
    return Note.of(
        "identical",
        loss_count=len(fault.judged.losses) if trains else 0,
        gradients=len(fault.judged.bad) if trains else 0,
        read=not trains and fault.raised is None,
        raised=not trains and fault.raised is not None,
        whole=False,
        way=way.where,
        eager=eager,
    )


def _lag_note(fault: Fault) -> tuple[Note, ...]:
    """How a step was made whose numbers were read at the next one."""
    if not fault.lag:
        return ()
    return (Note.of("found_late", step=fault.step, skipped=bool(fault.skipped)),)


def _bad(fault: Fault) -> Note:
    """What is bad at a step, or was read, or held as the program raised."""
    trains, judged = fault.optimizer is not None, fault.judged
    return Note.of(
        "bad_step",
        step=fault.step,
        loss=trains and bool(judged.bad_loss),
        gradients=len(judged.bad) if trains else 0,
        read=not trains and fault.raised is None,
        raised=not trains and fault.raised is not None,
        skipped=fault.skipped if trains else 0,
    )
