"""What led to a bad step, run once more to see its names, or with an edit; the program's state stays as it is."""

# pyright: basic

from __future__ import annotations

import ast
import dataclasses
import math
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Self

from whynan.errors import UsageError
from whynan.floats import format_value
from whynan.session.proving import RERUN, Ran, RunOnce, proved, with_surroundings
from whynan.verify.swapping import is_same_file, swapped
from whynan.verify.tails import retold
from whynan.verify.visiting import visiting

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from whynan.capture.torch.judging import Fault, Judged
    from whynan.capture.torch.onward import Onward
    from whynan.capture.torch.replay import Outcome
    from whynan.capture.torch.watch import Guard
    from whynan.capture.torch.ways import Way
    from whynan.records import Report
    from whynan.session.proving import Keep
    from whynan.session.region import Region
    from whynan.verify.visits import Visits


_SECONDS: Final = 5.0
"""So much processor time may all the steps take that are made after the bad one, with whichever edit."""
_LOSS: Final = 1e-3
"""By so much, relative, may an edit move a loss that was finite."""


class Replaying:
    """The way on which a replay was faithful, once more.

    `region` makes what looks at the operations of a replay, and `looked` puts it around one; it says that a run of
    the whole program would tell, where that is `advised` and a file cannot be replaced in the midst of it.
    """

    def __init__(
        self,
        way: Way,
        guard: Guard,
        fault: Fault,
        *,
        eager: bool,
        region: Callable[[], Region],
        looked: Callable[[Region, Fault, Way], AbstractContextManager[None]],
        advised: bool = False,
    ) -> None:
        self._way = way
        self._guard = guard
        self._fault = fault
        self._eager = eager
        self._region = region
        self._looked = looked
        self._advised = advised
        self._seconds = _SECONDS

    def proved(self, report: Report, *, keep: Keep | None = None) -> Report:
        """A report with the fixes of its findings."""
        with self.unheard():
            return proved(report, self, keep=keep)

    def visits(self, path: str, text: str, line: int) -> Visits | str:
        """The visits of the function at a line of a file whose text that is; or why there are none."""
        try:
            with visiting(path, text, line) as (recorder, swap):
                way = _retold(self._way, path, text, recorder.tree)
                outcome = self._replay(way, nullcontext)
        except UsageError as error:
            return error.what
        except ValueError as error:
            return str(error)
        if outcome.judged is not None and (why := self._differs(outcome)) is not None:
            return why
        if outcome.judged is not None and recorder.visits.visits:
            return recorder.visits
        return outcome.why or self._left("; ".join(swap.left) or "the replay did not come there")

    def unfaithful(self) -> str | None:
        """Why the way does not lead to the same step; None where it does."""
        outcome = self._replay(self._way, nullcontext)
        if outcome.judged is None:
            return RunOnce(f"no replay {self._way.where}: {outcome.why}; {RERUN}")
        why = self._differs(outcome)
        return None if why is None else RunOnce(f"{why}; {RERUN}")

    def _left(self, why: str) -> str:
        return RunOnce(f"{why}; {RERUN}") if self._advised else why

    def _differs(self, outcome: Outcome) -> str | None:
        if outcome.judged is None or outcome.judged.same_as(self._fault.judged):
            return None
        return f"no faithful replay {self._way.where}: other losses or gradients than in the step itself"

    def trial(self, path: str, before: str, after: str) -> Ran | str:
        """The report of a replay in which a file has another text; or why there is none."""
        region, onward = self._region(), self._onward()
        try:
            with swapped(path, before, after) as swap:
                way = _retold(self._way, path, before, after)
                if not swap.swapped and way is self._way:
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
        if not outcome.judged.is_good and not report.findings:
            # something bad is in the step all the same
            report = report.model_copy(update={"verdict": "inconclusive"})
        moved = _moved(self._fault.judged, outcome.judged)
        if onward is None or onward.first is None:
            return Ran(report, moved)
        guarded = self._fault.decision is not None
        return Ran(report, moved, onward.further if guarded else None, onward.bad)

    def _onward(self) -> Onward | None:
        """What looks at the step as it is made; None where it cannot be told from what was bad before."""
        from whynan.capture.torch.onward import Onward

        fault = self._fault
        if fault.optimizer is None and fault.decision is None:
            return None
        if fault.judged.spoilt or fault.ahead or fault.beside or fault.lag:
            return None
        return Onward(fault, self._seconds)

    def _replay(
        self, way: Way, region: Callable[[], AbstractContextManager[Any]], onward: Onward | None = None
    ) -> Outcome:
        from whynan.capture.torch.replay import replay

        outcome = replay(way, self._guard, self._fault, region, eager=self._eager, onward=onward)
        self._guard.here.replaying = True
        return outcome

    @contextmanager
    def unheard(self) -> Generator[Self]:
        """What is differentiated for a proof is none of the program's losses."""
        from whynan.capture.torch.judging import Losses

        here = self._guard.here
        losses, here.losses = here.losses, Losses()
        before, here.replaying = here.replaying, True
        try:
            yield self
        finally:
            here.losses, here.replaying = losses, before


def _moved(first: Judged, second: Judged) -> str | None:
    """That a loss which was finite is another one with an edit; None where none is."""
    if len(first.numbers) != len(second.numbers):
        return None
    for was, now in zip(first.numbers, second.numbers, strict=True):
        if math.isfinite(was) and math.isfinite(now) and abs(now - was) > _LOSS * max(abs(was), abs(now)):
            before, after = format_value(was, digits=5), format_value(now, digits=5)
            return f"run with it, the loss of the step is {after}, which was finite and {before}"
    return None


def _retold(way: Way, path: str, before: str, after: str | ast.Module) -> Way:
    """A way whose own code is that of another text of a file, where it stands in that file."""
    from whynan.capture.torch.ways import Tailed

    if not isinstance(way, Tailed) or not is_same_file(way.standing.frame.f_code.co_filename, path):
        return way
    tail = retold(way.standing.tail, before, after)
    told = [ast.dump(statement) for statement in tail.statements]
    if told == [ast.dump(statement) for statement in way.standing.tail.statements]:
        return way
    return dataclasses.replace(way, standing=dataclasses.replace(way.standing, tail=tail))
