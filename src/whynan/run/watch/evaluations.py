"""What a watched program computes beside its steps: its evaluations, and what led to bad numbers that it reads."""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from whynan.capture.ranks import TOGETHER, acts_blindly, is_one_of_several
from whynan.records import Coverage, ExitStatus, Note, Replay, Report, Run
from whynan.run.explained_call import CallRerunner
from whynan.run.proof.proving import is_interrupted
from whynan.run.proof.reruns import NoRerun
from whynan.run.region import refuses_another

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from whynan.capture.torch import Capture
    from whynan.capture.torch.sinks.gradients import Fault
    from whynan.config import Options
    from whynan.records import Verdict
    from whynan.run.proof.reruns import Rerunner
    from whynan.run.region import Region
    from whynan.run.watch.replays import Replays
    from whynan.source.decisions import Decision
    from whynan.training.evaluations import MadeCall
    from whynan.training.guard import Guard
    from whynan.verify.in_place.live_objects import Meanwhile


class Parent(Protocol):
    """The training beside which this is."""

    guard: Guard
    replays: Replays
    options: Options
    report: Report | None
    """Of the first bad step."""

    def set_aside(self) -> None:
        """End whatever looks at the program, for something else is about to."""

    def is_allowed(self, made: Decision) -> bool:
        """Whether the program goes on to do what it has decided."""
        ...

    def announce(self, report: Report, *, by_itself: bool = False) -> None:
        """Tell whoever waits for a proof what is bad; `by_itself`: the program will end itself."""
        ...

    def announce_proof(self, report: Report) -> None:
        """Tell whoever has waited for it what was proved."""
        ...

    def end_with(self, report: Report) -> BaseException | None:
        """What a report ends the program with."""
        ...


class EvaluationWatch:
    """What is looked at of one training beside its steps."""

    def __init__(self, training: Parent) -> None:
        from whynan.training.evaluations import Evaluations

        self._training = training
        self._found: list[Report] = []
        self._last: tuple[Report, int, bool] | None = None
        """What led to the last bad number, after how many steps, and whether the number itself has left the program."""
        self._followed: _Followed | None = None
        """What was bad of what the last evaluation gave, while the program has yet to do something with it."""
        self._decided: int | None = None
        """After how many steps what led to a decision on a bad loss, or to an exception, was told."""
        guard = training.guard
        guard.evaluations = Evaluations(self._begin, self._rerun, guard.fail)
        guard.observe(self._on_bad_read)

    def on_exception(self, error: BaseException, explained: Callable[[Report], None] | None = None) -> None:
        """The program is over, by an exception: look into what it held, unless that is known.

        `explained` is given the report of that before its fixes are proved.
        """
        self.settle()
        guard = self._training.guard
        try:
            fault = guard.exception_fault(error)
            if fault is not None and not self._knows(fault):
                self._look_into(fault, leaves=False, explained=explained or _untold)
        except Exception:
            guard.fail()

    def _knows(self, fault: Fault) -> bool:
        """Whether it has been told what led to an exception; of what was only read it is not, where it names that."""
        steps = self._training.guard.steps
        if self._last is None:
            return self._decided == steps
        names_it = fault.raised is not None and fault.raised.names_it
        return self._last[1] == steps and not names_it

    def pieces(self) -> list[Report]:
        """All that was found."""
        self.settle()
        if self._last is None:
            return self._found
        report, steps, leaves = self._last
        told = self._training.report
        if told is not None and _made_before(report, told, steps):
            return self._found
        if steps == self._training.guard.steps:
            # no step has followed: that is where it ended
            return [*self._found, report]
        return [*self._found, _as_warning(report)] if leaves and report.findings else self._found

    # -- evaluations -----------------------------------------------------------------------------------------------

    def _region(self) -> Region:
        return self._training.replays.region(sees_steps=False)

    def _begin(self) -> _Look | None:
        self._training.set_aside()
        if refuses_another():
            # one that another thread is at
            return None
        return _Look(self._region(), self._training.guard.steps + 1, self._ended)

    def _rerun(self, made: MadeCall, has_nan: bool) -> BaseException | None:
        """An evaluation has given something bad that others of its kind have not: run it again."""
        self._training.set_aside()
        if refuses_another():
            return None
        region = self._region()
        step = self._training.guard.steps + 1
        why = TOGETHER if acts_blindly() else None
        with self._replaying():
            why = why or made.again(lambda: _looked(region, step))
        if why is not None and not has_nan:
            # an Inf may be as it should
            return None
        if why is not None:
            notes = Note.create("evaluation_not_run_again", why=why), Note.create("mode_trace_advice")
            report = _unexplained(region.command, notes)
            self._found.append(report)
            return None
        replay = Replay(kind="step", faithful=True, typed_why=Note.create("same_elements"))
        region.change(
            lambda report: report.model_copy(update={"run": report.run.model_copy(update={"replay": replay})})
        )
        if not any(f.severity == "error" for f in region.report.findings):
            return self._tell(region, step, made)
        follow = self._region()
        follow.__enter__()
        follow.watching.notify(lambda capture: capture.begin_at(step))
        follow.watching.notify(lambda capture: capture.await_outputs(made.out))
        return self._follow(_Followed(follow, region, step, made))

    def _ended(self, region: Region, step: int, made: MadeCall) -> BaseException | None:
        """The first evaluation of its kind is over."""
        return self._follow(_Followed(region, region, step, made))

    def _follow(self, followed: _Followed) -> BaseException | None:
        """Look at what the program does with what an evaluation gave, where that is bad; at once where it cannot be.

        A mode of the program's that is on now may be taken off before this one.
        """
        self._followed = followed
        evaluations, main = self._training.guard.evaluations, threading.main_thread()
        alone = threading.current_thread() is main and not is_one_of_several()
        alone = alone and self._training.options.on_nonfinite != "raise"
        if followed.made.raised is not None or not alone or evaluations is None or not followed.can_follow():
            return self.settle()
        followed.looks.yields = True
        evaluations.follows = lambda: self.settle() if threading.current_thread() is main else None
        return None

    def settle(self) -> BaseException | None:
        """The program goes on: gives what it is to end with, unless it has mended what the last evaluation gave."""
        followed, self._followed = self._followed, None
        if self._training.guard.evaluations is not None:
            self._training.guard.evaluations.follows = None
        if followed is None:
            return None
        is_bad = followed.is_bad()
        _end(followed.looks)
        if followed.told is not followed.looks and not is_bad:
            return None
        return self._tell(followed.told, followed.step, followed.made)

    def _tell(self, region: Region, step: int, made: MadeCall) -> BaseException | None:
        if any(f.severity == "error" for f in region.report.findings):
            self._prove(region, step, made)
        report = region.report
        if report.verdict != "clean":
            self._found.append(report)
        is_error = any(f.severity == "error" for f in report.findings)
        if made.raised is not None:
            # what it has raised goes on
            self._decided = self._training.guard.steps if is_error else self._decided
            return None
        return self._training.end_with(report) if is_error else None

    def _prove(self, region: Region, step: int, made: MadeCall) -> None:
        """Prove the fixes of what an evaluation has shown by evaluations that are as it was."""
        replays = self._training.replays
        if acts_blindly():
            return
        from_start = None
        try:
            with self._replaying():
                from_start = replays.look_from_start(region, step)
        except Exception:
            # what is known is told all the same
            self._training.guard.fail()
        except KeyboardInterrupt:
            pass
        if not self._training.options.prove:
            return
        self._training.announce(region.report)
        with self._replaying():
            if from_start is not None:
                why = from_start.unfaithful_births(region.report, stopped=True)
                again: Rerunner = from_start
            else:
                again, why = _EvaluationRerunner(made, self._region, step), made.again(nullcontext)
            region.prove(again if why is None else NoRerun(why), replays.proof_options())

    @contextmanager
    def _replaying(self) -> Generator[None]:
        """What runs meanwhile is none of the program's steps."""
        here = self._training.guard.here
        before, here.replaying = here.replaying, not acts_blindly()
        try:
            yield
        finally:
            here.replaying = before

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _on_bad_read(self, fault: Fault) -> BaseException | None:
        steps = self._training.guard.steps
        if self._decided == steps or self._followed is not None:
            # what comes of it has been told, or will be
            return None
        made = fault.decision
        by_itself = made is not None and self._training.is_allowed(made)
        explained = _untold if made is None else partial(self._training.announce, by_itself=by_itself)
        before = self._last
        self._look_into(fault, leaves=made is None or not fault.certain, explained=explained)
        known = self._last
        if made is None and known is not None and known is not before and is_interrupted(known[0]):
            # it is for the program, which would go on
            return KeyboardInterrupt()
        if made is None or known is None or not any(f.severity == "error" for f in known[0].findings):
            return None
        self._decided, self._last = steps, None
        self._found.append(known[0])
        if not by_itself:
            return self._training.end_with(known[0])
        self._training.announce_proof(known[0])
        return None

    def _look_into(self, fault: Fault, *, leaves: bool, explained: Callable[[Report], None]) -> None:
        self._training.set_aside()
        if refuses_another():
            return

        def announce(report: Report) -> None:
            told = _as_in_a_run(report)
            if any(finding.severity == "error" for finding in told.findings):
                explained(told)

        found = self._training.replays.explain_fault(fault, announce)
        if isinstance(found, Report):
            found = _as_in_a_run(found)
            self._last = found, self._training.guard.steps, leaves
        elif found is not None and (self._last is None or not self._last[0].findings):
            # what was only read may be as it should
            verdict = "clean" if leaves and not _stops(fault.decision) else "inconclusive"
            self._last = (
                _unexplained(self._training.replays.command, found, verdict),
                self._training.guard.steps,
                leaves,
            )


def _made_before(read: Report, told: Report, steps: int) -> bool:
    """Whether what was read after some steps came in as nothing but what one of these has made, which is told."""
    made = any(f.severity == "error" and f.step is not None and f.step <= steps for f in told.findings)
    return made and all(f.birth == "entered" for f in read.findings)


def _untold(_: Report) -> None:
    """A report that may not be delivered."""


class _Look:
    """A look at one evaluation as it runs, at a step; `told` is given its report, and gives what to raise after it."""

    def __init__(
        self,
        region: Region,
        step: int,
        told: Callable[[Region, int, MadeCall], BaseException | None],
    ) -> None:
        self._region = region
        self._step = step
        self._told = told
        region.__enter__()
        region.watching.notify(lambda capture: capture.begin_at(step))

    def end(self, made: MadeCall) -> BaseException | None:
        """The evaluation is over, and what it gave is all that leaves it."""
        return self._told(self._region, self._step, made)


@dataclass(frozen=True)
class _Followed:
    """An evaluation that gave something bad, at a step: `looks` at what the program does with it, `told` at itself."""

    looks: Region
    told: Region
    step: int
    made: MadeCall

    def is_bad(self) -> bool:
        """Whether the program has not mended what is bad in what it gave, as far as it could be seen."""
        return self.looks.watching.capture is None or self._ask(lambda capture: capture.has_bad_output())

    def can_follow(self) -> bool:
        """Whether something is, and no mode is on that the program may take off meanwhile."""
        return self._ask(lambda capture: capture.stands_alone() and capture.has_bad_output())

    def _ask(self, question: Callable[[Capture], bool]) -> bool:
        found: list[bool] = []
        self.looks.watching.notify(lambda capture: found.append(question(capture)))
        return any(found)


class _EvaluationRerunner(CallRerunner):
    """The way to make the call of an evaluation again, at a step."""

    def __init__(self, made: MadeCall, region: Callable[[], Region], step: int) -> None:
        super().__init__(region)
        self._made = made
        self._step = step

    def _run(self, region: Region | None, live: Meanwhile | None = None) -> str | None:
        inside = nullcontext if region is None else lambda: _looked(region, self._step)
        with nullcontext() if live is None else live.apply():
            return self._made.again(inside, edited=True)


@contextmanager
def _looked(region: Region, step: int) -> Generator[None]:
    with region:
        region.watching.notify(lambda capture: capture.begin_at(step))
        try:
            yield
        finally:
            _end(region)


def _end(region: Region) -> None:
    region.watching.notify(lambda capture: capture.release_outputs())
    region.end(early=True)


def _stops(made: Decision | None) -> bool:
    """Whether the program ends, or leaves its loop, for a number, though that may be no loss."""
    return made is not None and made.does != "skips"


def _unexplained(command: str, notes: tuple[Note, ...], verdict: Verdict = "inconclusive") -> Report:
    run = Run(command=command, exit_status=ExitStatus(script=None, whynan=0 if verdict == "clean" else 1))
    return Report(verdict=verdict, run=run, coverage=Coverage(typed_notes=notes))


def _as_in_a_run(report: Report) -> Report:
    """What was only read is no error in a run that has made steps."""
    fatal = any(reached.kind != "observed" for finding in report.findings for reached in finding.reaches)
    # the line that decides is told as a link of its own
    fatal |= any(link.role == "sink" and link.site for finding in report.findings for link in finding.chain)
    return report if fatal else _as_warning(report)


def _as_warning(report: Report) -> Report:
    """What led to a bad number that was only read: the steps after it were good."""
    findings = tuple(f.model_copy(update={"severity": "warning"}) for f in report.findings)
    status = report.run.exit_status.model_copy(update={"whynan": 0})
    run = report.run.model_copy(update={"exit_status": status})
    return report.model_copy(update={"verdict": "damaged", "findings": findings, "run": run})
