"""Attempts to replay what led to a bad step, to see its names or with an edit; and why there is none."""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import math
import mmap
import threading
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from whynan.capture.ranks import TOGETHER, acts_blindly, is_one_of_several
from whynan.errors import UsageError
from whynan.floats import format_value
from whynan.records import Note, Replay
from whynan.replay.live_objects import own_modules
from whynan.run.guarded_capture import CaptureOptions
from whynan.run.proof.outcomes import birth_of
from whynan.run.proof.proving import ProofOptions, prove_fixes, with_surroundings
from whynan.run.proof.reruns import INTERRUPTED, RERUN, RUN_ONCE, EditedRun, NoRerun, RunOnce
from whynan.run.region import Region, refuses_another
from whynan.run.watch.joint_proof import Attempt, JointProof
from whynan.verify.in_place.edited_tail import edit_tail, lines_after
from whynan.verify.in_place.swap import edits_of, is_same_file, swap_code
from whynan.verify.in_place.visits import record_visits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from contextlib import AbstractContextManager
    from typing import TypeAlias, TypeVar

    from torch import Tensor

    from whynan.capture.torch import Capture
    from whynan.capture.torch.kept_operations import OperationKeeper
    from whynan.capture.torch.sinks.gradients import Fault, StepEvidence
    from whynan.config import Options
    from whynan.records import Report, Site
    from whynan.replay.checkpoint import Mark, Marks
    from whynan.replay.plan import ReplayPlan, TailPlan
    from whynan.run.proof.arguments import Heard
    from whynan.run.proof.proving import Audience
    from whynan.run.proof.reruns import Mended
    from whynan.run.suppressions import Baseline
    from whynan.run.watch.joint_proof import Lockstep
    from whynan.traces.writer import TraceWriter
    from whynan.training.course import Course
    from whynan.training.guard import Guard
    from whynan.training.replay import ReplayOutcome, TrialSteps
    from whynan.verify.in_place.live_objects import Meanwhile
    from whynan.verify.in_place.swap import SwappedTexts
    from whynan.verify.in_place.visits import Visits

    Around: TypeAlias = Callable[[], AbstractContextManager[Any]]
    Ask: TypeAlias = Callable[[Capture], BaseException | None]
    Way = TypeVar("Way", bound=ReplayPlan)


# -- What led to a bad step, run once more to see its names, or with an edit; the program's state stays as it is -------


# pyright: basic


_SECONDS: Final = 5.0
"""So much processor time may all the steps take that are made after the bad one, with whichever edit."""
_TRIES: Final = 3
"""So often is a way gone on which other collectives were called than in the step."""
_LONGEST_COURSE: Final = 15.0
"""Seconds that the course of a training may take by the clock for another one to be looked at."""
_LOSS: Final = 1e-3
"""By so much, relative, may an edit move a loss that was finite."""
_ROUNDING: Final = 2.0**-23
"""That of float32: by so much of the largest loss may one of 0 be another."""


class ReplayRerunner:
    """The way on which a replay was faithful, once more.

    `region` makes what looks at the operations of a replay, and `looked` puts it around one; `starts` are the ways
    from the program's beginning, if that is short. It says that a run of
    the whole program would tell, where that is `advised` and a file cannot be replaced in the midst of it.
    """

    def __init__(
        self,
        way: ReplayPlan,
        guard: Guard,
        fault: Fault,
        *,
        eager: bool,
        region: Callable[..., Region],
        looked: Callable[[Region, Fault, ReplayPlan], AbstractContextManager[None]],
        starts: tuple[ReplayPlan, ...],
        advised: bool = False,
    ) -> None:
        self._way = way
        self._guard = guard
        self._fault = fault
        self._eager = eager
        self._region = region
        self._looked = looked
        self._starts = starts
        self._advised = advised
        self._seconds = _SECONDS
        self._stopped: Report | None = None
        """What whynan has ended the run for, which has not come to what the program does behind that."""
        self.began_bad = False
        """Whether something was NaN already where it begins, as what the step has left."""
        self._bad_reads: dict[tuple[str, int], int] = {} if fault.read_at is None else {fault.read_at: 1}
        """Where the program has read a bad number, at which read of that line."""

    def prove_report(self, report: Report, options: ProofOptions) -> Report:
        """A report with the fixes of its findings."""
        with self.unheard():
            return prove_fixes(report, self, options)

    def attribute(self, report: Report, before: list[Tensor]) -> Report:
        """A report that says what makes the step bad; `before`: what loaders gave for the step before."""
        from whynan.capture.torch.interposition.wrappers import call_fenced

        return call_fenced(self._guard.fail, self._attributed, report, before) or report

    def _attributed(self, report: Report, before: list[Tensor]) -> Report:
        from whynan.capture.torch.names import tensors_of
        from whynan.run.watch.attribution import Step, attributed
        from whynan.training.replay import compiles

        run = functools.partial(self._replay, self._way)
        given = self._way.batches if self._way.amid is None else []
        batch = [tensor for value, _ in given for _, tensor in tensors_of(value, "")]
        with self.unheard():
            return attributed(
                report, Step(run, lambda outcome: self._differs(outcome) is None, compiles(), batch, before)
            )

    def visits(
        self, path: str, text: str, line: int, edited: SwappedTexts | None = None, mends: Mended = ()
    ) -> Visits | str:
        """The visits of the function at a line of a file whose text that is; or why there are none."""
        del mends
        way = self._way
        try:
            for edit in edited.edits if edited is not None else ():
                way = _relocated(way, *edit)
            with (
                nullcontext() if edited is None else edited.apply(),
                record_visits(path, text, line) as (recorder, swap),
            ):
                way = _relocated(way, path, text, recorder.tree)
                region = self._region_to_stop()
                looked = nullcontext if region is None else lambda: self._looked(region, self._fault, way)
                # what an edit leaves may be born in a later step
                outcome = self._replay(way, looked, None if edited is None else self._onward())
        except UsageError as error:
            return error.what
        except ValueError as error:
            return str(error)
        # an edit may well change the losses; what is to change none of them is tried before
        if edited is None and outcome.judged is not None and (why := self._differs(outcome)) is not None:
            return why
        if self._arrives(outcome) and recorder.visits.visits:
            return recorder.visits
        return outcome.why or self._left("; ".join(swap.left) or "the replay did not come there")

    def unfaithful(self) -> str | None:
        """Why the way does not lead to the same step; None where it does."""
        outcome = self._replay(self._way, nullcontext)
        if outcome.judged is None:
            return RunOnce(f"no replay {self._way.where}: {outcome.why}; {RERUN}")
        self._note_reads(outcome)
        self.began_bad = outcome.began_bad
        why = self._differs(outcome)
        return None if why is None else RunOnce(f"{why}; {RERUN}")

    def unfaithful_births(self, first: Report, *, stopped: bool) -> str | None:
        """Why the way does not lead to all that a run has found, which whynan may have ended; None where it does."""
        self._stopped = first if stopped else None
        region = self._region_to_stop() or self._region()
        outcome = self._replay(self._way, lambda: self._looked(region, self._fault, self._way))
        if not self._arrives(outcome):
            return RunOnce(f"no replay {self._way.where}: {outcome.why}; {RERUN}")
        self._note_reads(outcome)
        if _births(first) <= _births(region.report):
            return None
        return RunOnce(f"no faithful replay {self._way.where}: other births than in the run itself; {RERUN}")

    def bears(self, first: Report) -> bool:
        """Whether the way leads over the births of a report's findings."""
        region = self._region()
        self._replay(self._way, lambda: self._looked(region, self._fault, self._way))
        return {birth_of(finding) for finding in first.findings} <= _births(region.report)

    def _left(self, why: str) -> str:
        return RunOnce(f"{why}; {RERUN}") if self._advised else why

    def _arrives(self, outcome: ReplayOutcome) -> bool:
        return outcome.judged is not None or (self._stopped is not None and outcome.ended)

    def _region_to_stop(self) -> Region | None:
        """What looks at a replay and ends it where whynan has ended the run; None where it has not."""
        from whynan.training.replay import ReplayArrival

        first = self._stopped
        if first is None:
            return None

        def ask(capture: Capture) -> BaseException | None:
            return ReplayArrival() if _births(first) <= _births(region.preview(capture)) else None

        region = self._region(ask)
        return region

    def _differs(self, outcome: ReplayOutcome) -> str | None:
        # what a whole program came to, as it ended, is known by its births
        if outcome.judged is None or self._fault.whole or _is_faithful(self._way, outcome, self._fault):
            return None
        return f"no faithful replay {self._way.where}: other losses or gradients than in the step itself"

    def hear(self, objects: Heard) -> Heard | str:
        """What hears of the objects that a replay uses, once it has; or why it has not."""
        outcome = self._replay(self._way, objects.heard)
        return self._differs(outcome) or objects if self._arrives(outcome) else outcome.why

    def trial(
        self, path: str, before: str, after: str, live: Meanwhile | None = None, mends: Mended = ()
    ) -> EditedRun | str:
        """The report of a replay with another text of a file, and argument of live objects; or why there is none."""
        del mends
        region, onward = self._region(), self._onward()
        try:
            with swap_code(path, before, after) as swap, nullcontext() if live is None else live.apply():
                way = _relocated(self._way, path, before, after)
                for other in edits_of(live):
                    way = _relocated(way, *other)
                # a replay of the whole program makes its objects
                if (live is None or way.is_whole) and not swap.swapped and _statements(way) == _statements(self._way):
                    return self._left("; ".join(swap.left) or "nothing that is replayed is changed by it")
                outcome = self._replay(way, lambda: self._looked(region, self._fault, way), onward)
        except SyntaxError as error:
            return f"the edited text is no Python ({error.msg})"
        except ValueError as error:
            return str(error)
        if outcome.judged is None:
            return f"replayed {way.where}, {outcome.why}"
        self._seconds = max(0.0, self._seconds - onward.used) if onward is not None else self._seconds
        report = with_surroundings(region.report, region.trace)
        if outcome.judged.is_good and not report.findings and not self._reads_again(outcome, path, before, after):
            return f"replayed {way.where}, it does not come to where it read the bad number"
        if not outcome.judged.is_good and not report.findings:
            # something bad is in the step all the same
            report = report.model_copy(update={"verdict": "inconclusive"})
        moved = _moved(self._fault.judged, outcome.judged)
        if onward is None or onward.first is None:
            return EditedRun(report, moved)
        further = onward.further if self._fault.ends_itself else None
        return EditedRun(report, moved, further, onward.bad, *self._losses(onward), learns=onward.learns)

    def _losses(self, onward: TrialSteps) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The losses up to the step that was bad, its own with an edit included, and those of the steps after it."""
        if self._fault.optimizer is None:
            return (), ()
        known = [e for e in self._guard.history.steps_of(self._fault.optimizer) if e.step < self._fault.step]
        scale = next((e.scale for e in reversed(known) if e.scale), 1.0)
        first = () if onward.first is None else onward.first.numbers[-1:]
        own = [loss / scale for loss in (*self._fault.judged.numbers[-1:], *first)]
        return (*(e.loss for e in known if e.loss is not None), *own), tuple(loss / scale for loss in onward.later)

    def course(self, path: str = "", before: str = "", after: str = "") -> Course | str:
        """The steps of the program from its start, with another text of a file; or why it cannot be run from there."""
        from whynan.training.course import CourseSteps
        from whynan.training.replay import replay

        fault, why, begun = self._as_step(), f"what trains is not run again from its start; {RERUN}", time.monotonic()
        if fault is None:
            return why
        for way in self._starts:
            steps = CourseSteps(fault, _SECONDS)
            try:
                with swap_code(path, before, after) if path else nullcontext():
                    edited = _relocated(way, path, before, after) if path else way
                    outcome = replay(edited, self._guard, fault, nullcontext, eager=self._eager, onward=steps)
                    self._guard.here.replaying = True
            except (SyntaxError, ValueError) as error:
                return str(error)
            course = steps.course(outcome.why)
            if time.monotonic() - begun > _LONGEST_COURSE:
                # no other change is tried
                self._starts = ()
            if path:
                return course if outcome.judged is not None else f"replayed {way.where}, {outcome.why}"
            if fault is self._fault:
                is_faithful = outcome.judged is not None and outcome.judged.same_as(fault.judged, made_anew=True)
            else:
                is_faithful = course.comes_to(fault.step, self._guard.history.steps_of(fault.optimizer))
            if is_faithful:
                # with an edit it begins there
                self._starts = (way,)
                return course
            why = f"no faithful replay {way.where}: other losses or gradients than in the run"
        return why

    def _as_step(self) -> Fault | None:
        """The step that was bad, or, of a bad number that was read, that which the program's optimizer would make."""
        optimizers = self._guard.optimizers()
        if self._fault.optimizer is not None or len(optimizers) != 1:
            return self._fault if self._fault.optimizer is not None else None
        step = self._guard.attempts(optimizers[0]) + 1
        return dataclasses.replace(
            self._fault, optimizer=optimizers[0], step=step, decision=None, raised=None, read_at=None
        )

    def _reads_again(self, outcome: ReplayOutcome, path: str, before: str, after: str) -> bool:
        """Whether an edited program has read where it had read bad numbers, as often as up to these."""
        for (file, line), times in self._bad_reads.items():
            # code that the edit leaves alone keeps its lines
            lines = {line, *(lines_after(before, after, line) if is_same_file(file, path) else ())}
            if sum(outcome.log.counts[file, at] for at in lines) < times:
                return False
        return True

    def _onward(self) -> TrialSteps | None:
        """What looks at the step as it is made; None where it cannot be told from what was bad before."""
        from whynan.training.replay import TrialSteps, goes_past_steps

        fault = self._fault
        if goes_past_steps(self._way, fault):
            return TrialSteps(fault, self._seconds)
        if fault.whole or (fault.raised is not None and fault.decision is None and is_one_of_several()):
            return None
        if fault.judged.spoilt or fault.ahead or fault.beside or fault.lag:
            return None
        return TrialSteps(fault, self._seconds)

    def _replay(
        self, way: ReplayPlan, region: Around, onward: TrialSteps | None = None, *, eager: bool = False
    ) -> ReplayOutcome:
        from whynan.training.replay import replay

        outcome = replay(way, self._guard, self._fault, region, eager=eager or self._eager, onward=onward)
        self._guard.here.replaying = True
        return outcome

    def _note_reads(self, outcome: ReplayOutcome) -> None:
        at, raised = self._fault.read_at, self._fault.raised
        # what raised may write into its text what it raised for
        told = {(f.f_code.co_filename, f.f_lineno) for f in raised.frames} if raised is not None else set()
        bad = {place: times for place, times in outcome.log.bad.items() if place not in told}
        self._bad_reads = bad if at is None else {at: max(1, outcome.log.counts[at])}

    @contextmanager
    def unheard(self) -> Generator[Self]:
        """What is differentiated for a proof is none of the program's losses."""
        from whynan.capture.torch.sinks.gradients import Losses

        here = self._guard.here
        losses, here.losses = here.losses, Losses()
        before, here.replaying = here.replaying, True
        try:
            yield self
        finally:
            here.losses, here.replaying = losses, before


def _moved(first: StepEvidence, second: StepEvidence) -> str | None:
    """That a loss which was finite is another one with an edit; None where none is."""
    if len(first.numbers) != len(second.numbers):
        return None
    most = max(abs(number) for number in (*first.numbers, 1.0) if math.isfinite(number))
    for was, now in zip(first.numbers, second.numbers, strict=True):
        # one of 0 has no digit left: it may be as large as the rounding of the numbers beside it
        room = _LOSS * max(abs(was), abs(now)) if was and now else _ROUNDING * most
        if math.isfinite(was) and math.isfinite(now) and abs(now - was) > room:
            before, after = format_value(was, digits=5), format_value(now, digits=5)
            return f"run with it, the loss of the step is {after}, which was finite and {before}"
    return None


def _relocated(way: ReplayPlan, path: str, before: str, after: str | ast.Module) -> ReplayPlan:
    """A way whose own code is that of another text of a file, where it stands in that file."""
    from whynan.replay.plan import TailPlan

    if not isinstance(way, TailPlan) or not is_same_file(way.standing.frame.f_code.co_filename, path):
        return way
    tail = edit_tail(way.standing.tail, before, after)
    return dataclasses.replace(way, standing=dataclasses.replace(way.standing, tail=tail))


def _statements(way: ReplayPlan) -> list[str]:
    """What a way's own code says, on whichever lines."""
    from whynan.replay.plan import TailPlan

    return [ast.dump(statement) for statement in way.standing.tail.statements] if isinstance(way, TailPlan) else []


# -- The report of what led to a bad step, by running that again; or why there is none ---------------------------------


NOT_ASKED = "no proof was asked for (--no-proof)"

_HELD = ("buffer", "parameter")
_LONG = 5.0
"""Seconds that the program took from a mark to its step, beyond which a shorter way is gone first."""

NO_WAY = "what led to the step stands in no code that can be run again from its source"


class Replays:
    """The replays of one training."""

    def __init__(self, options: Options, command: str, guard: Guard, marks: Marks) -> None:
        self.called: list[ReplayPlan] = []
        """The program's own step function, where it is known."""
        self.recording: Callable[[], TraceWriter | None] = lambda: None
        """Gives what writes the trace of a replay to disk."""
        self.baseline: Baseline | None = None
        self.keeper: OperationKeeper | None = None
        """Keeps the operations of a replay that bear bad numbers."""
        self.visits: dict[Site, Visits] = {}
        """What the function of a finding read, where operations are kept: of the site."""
        self.is_share_good = False
        """Whether this rank's part of the bad step is good: what is bad has come from another."""
        self.audience: Audience | None = None
        """Whoever waits for a proof."""
        self.ranks: Lockstep | None = None
        """The other ranks, where they can be reached."""
        self._joint: tuple[ReplayPlan, bool] | None = None
        """The way on which this rank has come to the bad step again, and whether what was compiled ran as written."""
        self._refused: tuple[ReplayPlan, bool] | None = None
        """The first way on which it has not."""
        self._is_alone = False
        """Whether nothing was exchanged on the first of them."""
        self._begins_before = False
        """Whether something was bad there before it."""
        self._options = options
        self._ends = options.on_nonfinite not in ("continue", "skip")
        """Whether the program ends with its first bad step: what runs here that ran in a worker has no effect then."""
        self.command = command
        self._guard = guard
        self._marks = marks
        self._starts: tuple[ReplayPlan, ...] = ()
        """The ways from the program's start, where that was short when something was bad."""

    def region(self, *, sees_steps: bool = True) -> Region:
        """What looks at a piece of the program."""
        watched = CaptureOptions(recording=self.recording(), keeper=self.keeper, sees_steps=sees_steps)
        made_here = Region(self._options, command=self.command, watched=watched, quiet=True)
        made_here.baseline = self.baseline
        return made_here

    def explain_fault(
        self, fault: Fault, explained: Callable[[Report], None] = lambda _: None
    ) -> Report | tuple[Note, ...] | None:
        """The report of a faithful replay; or why there is none. None where all that was born is allowed.

        `explained` is given the report before its fixes are proved.
        """
        found = self._explained(fault, explained)
        ranks = self.ranks
        joint = self._joint or (self._refused if isinstance(found, tuple) else None)
        if joint is None or not self._options.prove:
            if ranks is not None:
                ranks.leave()
            return found
        report = None if isinstance(found, tuple) else found
        alone = self._joint is not None and self._is_alone
        attempts = self._attempts(fault, *joint, explained)
        proof = JointProof(attempts, None if self._options.redact else ranks, alone=alone)
        proved = proof.prove(report, self.proof_options())
        return found if proved is None else proved

    def _attempts(
        self, fault: Fault, way: ReplayPlan, eager: bool, explained: Callable[[Report], None]
    ) -> list[Attempt]:
        """The ways to a bad step that all ranks may go: from the program's start, and that of this rank."""
        from whynan.replay.plan import replay_plans
        from whynan.training.replay import compiles

        spoilt = bool(fault.judged.spoilt)
        marks = [(self._marks.at_program, spoilt), (self._marks.at_import, self._begins_before and not spoilt)]
        tried: list[tuple[ReplayPlan, bool, bool]] = []
        for mark, wanted in [] if self.ranks is None else marks:
            start = self._program_start(mark)
            plan = None if start is None else next(replay_plans([start]), None)
            tried += [] if plan is None else [(plan, compiles(), wanted)]
        attempts: list[Attempt] = []
        for one, eagerly, wanted in [*tried, (way, eager, True)]:
            explains = one.is_whole or self._joint is None
            looked_at = functools.partial(self._explained_together, fault, one, explained, eager=eagerly)
            again = self._make_rerunner(one, fault, eager=eagerly)
            attempts.append(Attempt(fault.step, one.where, again, looked_at if explains else None, wanted))
        return attempts

    def _explained_together(
        self, fault: Fault, way: ReplayPlan, explained: Callable[[Report], None], *, eager: bool
    ) -> tuple[bool, Report | None]:
        """Whether a replay that all ranks make is faithful, and the report of it, where something was born in it."""
        from whynan.training.replay import replay

        region = self.region()
        outcome = replay(way, self._guard, fault, functools.partial(self._looked, region, fault, way), eager=eager)
        if not _is_faithful(way, outcome, fault):
            return False, None
        if not region.report.findings:
            return True, None
        replay_ = Replay(kind=way.kind, faithful=True, typed_why=_same(fault, way, eager=eager))
        said = () if way.is_whole else _spoilt(fault)
        report = _replayed(with_surroundings(region.report, region.trace), replay_, said)
        explained(report)
        return True, report

    def _explained(self, fault: Fault, explained: Callable[[Report], None]) -> Report | tuple[Note, ...] | None:
        from whynan.replay.plan import replay_plans

        self._joint, self._refused, self._begins_before = None, None, False
        self._starts = self._ways_from_start()
        refused = [Note.create("gone_on")] if fault.lag else []
        if refuses_another():
            refused.append(Note.create("another_thread"))
        if acts_blindly():
            refused.append(Note.create("replay_together"))
        left = fault.raised.frames if fault.raised is not None else ()
        # what was bad before the step is born on the way from the start, if at all
        is_later = bool(self._guard.steps) and not is_one_of_several()
        start = self._program_start(self._marks.at_program) if is_later else None
        beginning = [] if start is None else [*replay_plans([start], left)]
        ways = itertools.chain(self.called, replay_plans(self._marks.kept(), left))
        tried = itertools.chain(beginning, ways) if fault.judged.spoilt else itertools.chain(ways, beginning)
        tried = () if refused else tried
        suspected: list[Note] = []
        for way, eager, region, outcome in self._runs(fault, tried):
            why = ""
            if outcome.judged is None:
                why = outcome.why
            elif eager and outcome.judged.is_good:
                suspected.append(Note.create("compiler_suspected", way=way.where, eager=eager))
            elif outcome.shared and outcome.judged.is_good and outcome.judged.is_part_of(fault.judged):
                # what is bad is another rank's
                self.is_share_good = True
                self._joint = way, eager
                return (_bad(fault), Note.create("share_good"))
            elif not _is_faithful(way, outcome, fault):
                why = "other losses or gradients than in the step itself"
            elif not region.report.findings and region.report.coverage.notes_of("allowed"):
                return None
            elif not region.report.findings and fault.optimizer is None and fault.raised is None:
                # an Inf that the program itself has written
                return None
            elif not region.report.findings:
                why = "nothing bad was born in it"
            else:
                began_bad = outcome.began_bad and fault.optimizer is None and fault.raised is None
                self._begins_before = _begins_before(region.report) or began_bad
                if self._begins_before and not way.is_whole:
                    made_before = self._born_before(fault) or self._born_as_loaded(fault, way)
                    way, eager, region = made_before or (way, eager, region)
                knows = way.is_whole or way.loads_again
                began = (Note.create("began_bad"),) if began_bad and not knows else ()
                said = (*suspected[:1], *began, *(() if way.is_whole else _spoilt(fault)))
                report = with_surroundings(region.report, region.trace)
                replay_ = Replay(kind=way.kind, faithful=True, typed_why=_same(fault, way, eager=eager))
                report = _replayed(report, replay_, said)
                explained(report)
                self._is_alone = not outcome.shared and not _exchanges(way)
                return self._proved(report, way, fault, eager=eager)
            if why:
                self._refused = self._refused or (way, eager)
                refused.append(Note.create("no_replay", way=way.where, eager=eager, why=why))
        hint = Note.create("start_step_advice", step=fault.step)
        if fault.beside:
            refused = [Note.create("another_optimizer")]
        if not refused and not suspected:
            refused.append(Note.create("no_way"))
        advice = (Note.create("sync_advice"),) if fault.lag else ()
        return (_bad(fault), *_lag_note(fault), *suspected[:1], *_spoilt(fault), *refused, *advice, hint)

    def _born_before(self, fault: Fault) -> tuple[ReplayPlan, bool, Region] | None:
        """A way from the program's start in which all was born that was bad where a shorter way begins."""
        from whynan.replay.plan import TailPlan

        # one NaN that is read is like another: all is made anew there, and its steps have led to the same weights
        first = self._marks.at_import if self._guard.optimizers() else None
        starts = [way for way in self._starts if isinstance(way, TailPlan) and way.mark is first]
        return next(self._bearing(fault, starts), None)

    def _born_as_loaded(self, fault: Fault, way: ReplayPlan) -> tuple[ReplayPlan, bool, Region] | None:
        """A way in which all is born as a loader's dataset makes its batches once more, bit for bit."""
        from whynan.replay.plan import TailPlan

        again = way.loading_again(workers=self._ends) if isinstance(way, TailPlan) else None
        ways = [] if again is None else [again]
        return next((found for found in self._bearing(fault, ways) if found[0].has_loaded_the_same()), None)

    def look_at_loading(self, region: Region, fault: Fault) -> None:
        """Have a region that has ended tell where that was born which came bad from the workers of a loader."""
        from whynan.replay.plan import replay_plans

        data = [finding.data for finding in region.report.findings[:1]]
        if is_one_of_several() or all(one is None or one.worker is None for one in data):
            return
        ways = [way.loading_again(workers=self._ends) or way for way in replay_plans(self._marks.kept())]
        for way, eager, found in self._bearing(fault, ways):
            if way.has_loaded_the_same():
                replay_ = Replay(kind=way.kind, faithful=True, typed_why=_same(fault, way, eager=eager))
                region.take(found, _replayed(found.report, replay_, ()))
                return

    def look_from_start(self, region: Region, step: int) -> ReplayRerunner | None:
        """Have a region tell where that was born which was bad before it began, in a program that has been short.

        Gives the way there: all is run again from the program's start, up to where the same elements leave.
        """
        from whynan.capture.torch.sinks.gradients import Fault, StepEvidence
        from whynan.replay.plan import replay_plans
        from whynan.training.replay import ReplayArrival, compiles, replay

        first = region.report
        start = self._program_start(self._marks.at_import) or self._program_start(self._marks.at_program)
        if start is None or not _comes_in(first) or is_one_of_several():
            return None

        def ask(capture: Capture) -> BaseException | None:
            return ReplayArrival() if _outputs(first) <= _outputs(looks.preview(capture)) else None

        # the program would go on for as long as it likes
        watched = CaptureOptions(on_sink=ask, at_once=True)
        looks = Region(self._options, command=self.command, watched=watched, quiet=True)
        fault = Fault(None, step, StepEvidence((), (), bad_loss=False))
        # what is evaluated does not differentiate, as what it began with did
        plan, names, eager = next(replay_plans([start]), None), _held_names(first), compiles()
        if plan is None or not names:
            return None
        way = dataclasses.replace(plan, differentiates_as_then=True)
        outcome = replay(way, self._guard, fault, lambda: self._looked(looks, fault, way), eager=eager)
        found = looks.report
        made = found.findings and not _begins_before(found, literals=True)
        spoilt = {reach.name for one in found.findings for reach in one.reaches if reach.kind in _HELD}
        if not outcome.ended or not made or _outputs(found) != _outputs(first) or not names <= spoilt:
            return None
        why = Note.create("same_elements")
        region.take(looks, _replayed(found, Replay(kind="loop", faithful=True, typed_why=why), ()))
        return self._make_rerunner(way, fault, eager=eager, advised=True)

    def _bearing(self, fault: Fault, ways: Iterable[Way]) -> Generator[tuple[Way, bool, Region]]:
        """The ways that lead to the bad step over the births of all that was bad, none of which comes in."""
        for way, eager, region, outcome in self._runs(fault, ways):
            made = bool(region.report.findings) and not _begins_before(region.report, literals=True)
            if made and _is_faithful(way, outcome, fault):
                yield way, eager, region

    def explain_doubt(self, fault: Fault) -> Report | None:
        """The report of a faithful replay of a step in which nothing is bad, if something in it is wrong."""
        from whynan.replay.plan import replay_plans

        if refuses_another() or is_one_of_several():
            return None
        for way, eager, region, outcome in self._runs(fault, [*self.called, *replay_plans(self._marks.kept())]):
            if outcome.judged is None or not outcome.judged.same_as(fault.judged):
                continue
            if not region.report.damaging or region.report.findings:
                return None
            report = with_surroundings(region.report, region.trace)
            replay_ = Replay(kind=way.kind, faithful=True, typed_why=_same(fault, way, eager=eager))
            report = _replayed(report, replay_, ())
            return self._proved(report, way, fault, eager=eager)
        return None

    def _runs(self, fault: Fault, tried: Iterable[Way]) -> Generator[tuple[Way, bool, Region, ReplayOutcome]]:
        """Run what led to a step again, one way after the other, until one is enough."""
        from whynan.training.collective_replay import leave_out_calls
        from whynan.training.replay import compiles, replay

        for way in tried:
            # what was compiled is looked at operation by operation where it runs eagerly
            for eager in (True, False) if compiles() else (False,):
                left_out = 0
                for _ in range(_TRIES):
                    region = self.region()
                    looked = functools.partial(self._looked, region, fault, way)
                    outcome = replay(way, self._guard, fault, looked, eager=eager)
                    if not outcome.uncalled or _is_faithful(way, outcome, fault):
                        break
                    # what is called as an optimizer's step ends comes after its mark
                    leave_out_calls(way.began, outcome.uncalled)
                    left_out += outcome.uncalled
                if not _is_faithful(way, outcome, fault):
                    # another way from there begins with all of them
                    leave_out_calls(way.began, -left_out)
                yield way, eager, region, outcome

    def step(self, optimizer: Any) -> Fault:
        """The step that an optimizer is about to make."""
        from whynan.capture.torch.sinks.gradients import Fault, gather_evidence

        return Fault(
            optimizer, self._guard.attempts(optimizer) + 1, gather_evidence(optimizer, self._guard.here.losses)
        )

    def prove(self, region: Region, fault: Fault) -> None:
        """Prove the fixes of what a region has found that has looked at a bad step as it was made, and has ended."""
        self._starts = self._ways_from_start()
        if not self._options.prove or is_one_of_several():
            region.prove(NoRerun(TOGETHER if self._options.prove else NOT_ASKED))
            return
        try:
            again = self._faithful_rerunner(fault, region.report)
        except KeyboardInterrupt:
            again = NoRerun(INTERRUPTED)
        if isinstance(again, NoRerun):
            region.prove(again)
            return
        with again.unheard():
            if self._options.attribute:
                region.change(lambda report: again.attribute(report, self._marks.batches_before()))
            region.prove(again, self.proof_options())

    def _faithful_rerunner(self, fault: Fault, report: Report) -> ReplayRerunner | NoRerun:
        """The way that leads to a bad step, and over its first birth if there is such a one; or why none does."""
        from whynan.replay.plan import replay_plans
        from whynan.training.replay import compiles

        why, from_start = RunOnce(f"{NO_WAY}: {RERUN}"), _comes_in(report)
        is_ahead = from_start or _begins_in_loop(self._marks.at_program)
        behind: ReplayRerunner | None = None
        left: ReplayRerunner | None = None
        marks = self._marks.at_import if is_ahead else None, self._marks.at_program
        beginning = [start for mark in marks if (start := self._program_start(mark)) is not None]
        kept = _shortest(list(replay_plans(self._marks.kept())))
        loading = [again for way in kept if from_start and (again := way.loading_again(workers=self._ends)) is not None]
        ways = [*loading, *kept, *replay_plans(beginning)]
        for way in sorted(ways, key=lambda way: from_start and not way.is_whole):
            if behind is not None and not way.is_whole:
                continue
            with self._make_rerunner(way, fault, eager=compiles(), advised=True).unheard() as again:
                unfaithful = again.unfaithful()
                if unfaithful is not None:
                    why = unfaithful
                elif not way.has_loaded_the_same():
                    continue
                elif again.began_bad and not way.is_whole:
                    # what the step has left would be told of every change
                    left = left or again
                elif way.is_whole or not beginning or again.bears(report):
                    return again
                else:
                    behind = again
        return behind or left or NoRerun(why)

    def prove_whole(self, region: Region, error: BaseException | None, *, stopped: bool) -> None:
        """Prove the fixes of what a region has found in a program that is over, by replays of it, if it was short.

        `error`: what the program raised, if that is how it ended. `stopped`: whynan has ended it.
        """
        is_ahead = _comes_in(region.report) or _begins_in_loop(self._marks.at_program)
        prepared = self._program_start(self._marks.at_import) if is_ahead else None
        beginning = None if self._guard.steps else prepared or self._program_start(self._marks.at_program)
        if beginning is None or not (self._options.prove and (error is None or isinstance(error, Exception))):
            region.prove(NoRerun(RUN_ONCE if self._options.prove else NOT_ASKED))
            return
        frames = tuple(standing.frame for standing in beginning.frames)
        from whynan.capture.torch.sinks.gradients import Fault, Raised, StepEvidence
        from whynan.replay.plan import replay_plans
        from whynan.training.replay import compiles

        way, *_ = _shortest(list(replay_plans([beginning], frames)))
        raised = None if error is None else Raised(type(error), frames)
        nothing = StepEvidence((), (), bad_loss=False)
        fault = Fault(None, self._guard.steps + 1, nothing, raised=raised)
        with self._make_rerunner(way, fault, eager=compiles(), advised=True).unheard() as again:
            try:
                why = again.unfaithful_births(region.report, stopped=stopped)
            except KeyboardInterrupt:
                why = INTERRUPTED
            if why is None:
                region.prove(again, self.proof_options())
                return
        region.prove(NoRerun(why))

    def _program_start(self, start: Mark | None) -> Mark | None:
        """Where the program began, if all of it may be replayed: it was short, and nothing of it goes on beside it."""
        alone = threading.current_thread() is threading.main_thread() and threading.active_count() == 1
        may = start is not None and start.frames and start.is_short() and alone and not _has_mapped_memory()
        return start if may else None

    def proof_options(self) -> ProofOptions:
        keep = None if self.keeper is None else self.visits.__setitem__
        progress = None if self.audience is None else self.audience.trying
        return ProofOptions(self._options.proof_seconds, keep, progress)

    def _proved(self, report: Report, way: ReplayPlan, fault: Fault, *, eager: bool) -> Report:
        again = self._make_rerunner(way, fault, eager=eager)
        if self._options.attribute:
            report = again.attribute(report, self._marks.batches_before())
        if self._options.prove and is_one_of_several():
            self._joint = way, eager
            return report
        if not self._options.prove:
            return prove_fixes(report, NoRerun(NOT_ASKED))
        if _comes_in(report) and not way.is_whole and not way.loads_again:
            further = self._faithful_rerunner(fault, report)
            again = again if isinstance(further, NoRerun) else further
        return again.prove_report(report, self.proof_options())

    def _make_rerunner(self, way: ReplayPlan, fault: Fault, *, eager: bool, advised: bool = False) -> ReplayRerunner:
        def unrecorded(ask: Ask | None = None) -> Region:
            return Region(self._options, command=self.command, watched=CaptureOptions(on_sink=ask), quiet=True)

        return ReplayRerunner(
            way,
            self._guard,
            fault,
            eager=eager,
            region=unrecorded,
            looked=self._looked,
            starts=self._starts,
            advised=advised,
        )

    def _ways_from_start(self) -> tuple[ReplayPlan, ...]:
        from whynan.replay.plan import replay_plans

        marks = () if is_one_of_several() else (self._marks.at_import, self._marks.at_program)
        starts = [start for mark in marks if (start := self._program_start(mark)) is not None]
        ways = (next(replay_plans([start]), None) for start in starts)
        return tuple(way for way in ways if way is not None)

    @contextmanager
    def _looked(self, region: Region, fault: Fault, way: ReplayPlan) -> Generator[None]:
        """A region around a replay: the program goes on after it."""
        from whynan.capture.torch.provenance.before_the_run import Inherited

        def tell(capture: Capture) -> None:
            if way.is_whole:
                # its optimizers are made anew
                capture.begin_at(1)
            else:
                capture.begin_at(fault.step, fault.optimizer)
            if fault.optimizer is not None and not way.is_whole:
                capture.set_inherited_state(Inherited(fault))
                capture.set_scale_fall(fault.scale_fall)
            if way.amid is not None:
                capture.set_start_place(way.amid)
            for batch, came in way.batches:
                capture.tracer.origins.note(batch, came.source(), "batch")

        with region:
            region.watching.notify(tell)
            try:
                yield
            finally:
                if fault.optimizer is None:
                    here = self._guard.here
                    region.watching.notify(lambda capture: capture.release_outputs(here.seen, here.raised))
                    here.seen = here.raised = None
                region.end(early=not fault.whole)


def _begins_in_loop(start: Mark | None) -> bool:
    """Whether a program's first operation stands in a loop, whose turns cannot be made again from amid one."""
    return start is not None and any(standing.tail.loops for standing in start.frames)


def _births(report: Report) -> set[tuple[object, ...]]:
    return {birth_of(finding) for finding in (*report.findings, *report.damaging)}


def _begins_before(report: Report, *, literals: bool = False) -> bool:
    """Whether something bad was there already where what a report is of began; `literals`: or was written."""
    births = ("entered", "literal") if literals else ("entered",)
    first = (next((link for link in one.chain if link.role == "cause"), None) for one in report.findings)
    held = any(link is not None and link.typed_summary.kind == "holds" for link in first)
    return held or any(one.birth in births for one in report.findings)


def _held_names(report: Report) -> set[str]:
    """The buffers and weights that a report's findings begin with; none where one begins with something else."""
    first = [next((link for link in one.chain if link.role == "cause"), None) for one in report.findings]
    origins = [None if link is None else link.typed_summary.values.get("origin") for link in first]
    known = [origin.values for origin in origins if isinstance(origin, Note) and origin.values.get("sort") in _HELD]
    return {str(values["tensor"]) for values in known} if len(known) == len(first) else set()


def _outputs(report: Report) -> set[tuple[int, int]]:
    """How many elements of how many have left bad in what modules gave."""
    reaches = (reach for finding in report.findings for reach in finding.reaches if reach.kind == "output")
    return {(reach.bad, reach.total) for reach in reaches}


def _comes_in(report: Report) -> bool:
    """Whether what is bad comes in from where data are read or made, ahead of the step."""
    return any(finding.birth in ("entered", "literal") or finding.data is not None for finding in report.findings)


def _is_faithful(way: ReplayPlan, outcome: ReplayOutcome, fault: Fault) -> bool:
    """Whether a replay has come to the same step, or to this rank's part of it."""
    from whynan.training.replay import goes_past_steps

    judged = outcome.judged
    if judged is None or outcome.shared:
        return judged is not None and judged.is_part_of(fault.judged)
    return judged.same_as(fault.judged, made_anew=goes_past_steps(way, fault))


def _exchanges(way: ReplayPlan) -> bool:
    """Whether the program has called a collective on a way, whose result would be another one with an edit."""
    from whynan.capture.torch.interposition.collective_calls import active_log

    log = active_log()
    return log is None or bool(log.calls_since(way.began))


def _has_mapped_memory() -> bool:
    """Whether the program's own modules hold memory that is a file: what is written there cannot be held back."""
    mapped = (mmap.mmap, np.memmap)
    return any(isinstance(value, mapped) for names in own_modules() for value in list(names.values()))


def _shortest(found: list[TailPlan]) -> list[TailPlan]:
    """Ways that are gone many times, for a proof: what runs the most first, unless that takes long.

    With an edit the program goes on behind the function under ``no_grad`` that it was stopped in.
    """
    now = time.monotonic()
    taken = {id(way): now - way.began for way in found}
    return sorted(
        found, key=lambda way: (taken[id(way)] if taken[id(way)] > _LONG else 0.0, not way.differentiates_as_then)
    )


def _replayed(report: Report, replay: Replay, notes: tuple[Note, ...]) -> Report:
    coverage = report.coverage.with_notes(*notes)
    run = report.run.model_copy(update={"replay": replay})
    return report.model_copy(update={"run": run, "coverage": coverage})


def _spoilt(fault: Fault) -> tuple[Note, ...]:
    """What is to be said of weights that are bad already."""
    if not fault.judged.spoilt:
        return ()
    from whynan.capture.torch.provenance.before_the_run import state_at

    spoilt = Note.create("spoilt_before", parameters=len(fault.judged.spoilt), step=fault.step)
    if fault.step == 1:
        return (spoilt,)
    state = state_at(fault.optimizer, fault.judged.spoilt[0])
    return (spoilt, Note.create("optimizer_state", state=state)) if state else (spoilt,)


def _same(fault: Fault, way: ReplayPlan, *, eager: bool) -> Note:
    """What a replay has given again."""
    trains = fault.optimizer is not None
    return Note.create(
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
    return (Note.create("found_late", step=fault.step, skipped=bool(fault.skipped)),)


def _bad(fault: Fault) -> Note:
    """What is bad at a step, or was read, or held as the program raised."""
    trains, judged = fault.optimizer is not None, fault.judged
    return Note.create(
        "bad_step",
        step=fault.step,
        loss=trains and bool(judged.bad_loss),
        gradients=len(judged.bad) if trains else 0,
        read=not trains and fault.raised is None,
        raised=not trains and fault.raised is not None,
        skipped=fault.skipped if trains else 0,
    )
