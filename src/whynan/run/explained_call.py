"""The one call of ``explain``'s target, and further calls from the same saved state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whynan.errors import UsageError, WhynanError
from whynan.replay.live_objects import collect
from whynan.report.notes import sentence
from whynan.run.proof.proving import with_surroundings
from whynan.run.region import exception_text
from whynan.traces.format import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from whynan.records import Report
    from whynan.run.call_target import Target
    from whynan.run.guarded_capture import GuardedCapture
    from whynan.run.proof.arguments import Heard, Listener
    from whynan.run.proof.reruns import Mended
    from whynan.run.region import Region
    from whynan.verify.in_place.live_objects import Meanwhile
    from whynan.verify.in_place.swap import SwappedTexts
    from whynan.verify.in_place.visits import Visits


# -- The one call of ``explain``'s target, and a second one from the same state, which may fail without harming it -----


class Call:
    """A target with its arguments; what fails around its call is reported, and the call is made all the same."""

    def __init__(self, target: Callable[..., Any], inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._target = target
        self._inputs = inputs
        self._kwargs = kwargs
        self._known: Target | None = None

    def prepare(self, watching: GuardedCapture, *, twice: bool) -> None:
        """Name the arguments, and keep the state for a second call; raises ``MetaTensorError`` at the door."""
        from whynan.run.call_target import Target

        try:
            known = Target(self._target, self._inputs, self._kwargs)
            if twice:
                known.remember()
            self._known = known
        except WhynanError:
            raise
        except Exception:
            watching.fail()

    def run(self, watching: GuardedCapture) -> None:
        """Call the target; `watching` sees its arguments, and its value as a sink."""
        known = self._known
        if known is not None:
            watching.notify(known.introduce)
        result = self._target(*self._inputs, **self._kwargs)
        watching.notify(lambda capture: capture.target_returned(result))
        if known is not None:
            watching.notify(lambda _: known.keep(result))

    def call_for_fix(self, watching: GuardedCapture) -> None:
        """Call the target for a fix, as it is written: nothing of it compiled, and its value is not kept."""
        known = self._known
        if known is not None:
            watching.notify(known.introduce)
        with _uncompiled():
            result = self._target(*self._inputs, **self._kwargs)
        watching.notify(lambda capture: capture.target_returned(result))

    def rewind(self, watching: GuardedCapture) -> bool:
        """Put the state of the first call back; False, and the state as it is, where that cannot be done."""
        if self._known is None:
            return False
        try:
            self._known.rewind()
        except Exception:
            self.restore(watching)
            watching.fail()
            return False
        return True

    def advanced(self, watching: GuardedCapture) -> str | None:
        """An iterator that the call has taken from, where it cannot be put back; in words."""
        try:
            return None if self._known is None else self._known.advanced
        except Exception:
            watching.fail()
            return None

    def restore(self, watching: GuardedCapture) -> None:
        """Put the state after the first call back."""
        assert self._known is not None
        try:
            self._known.restore()
        except Exception:
            watching.fail()
            # once more: the state is the user's
            self._known.restore()

    def identical(self, watching: GuardedCapture) -> bool:
        """Whether both calls returned the same bits."""
        try:
            return self._known is not None and self._known.identical
        except Exception:
            watching.fail()
            return False


def _uncompiled() -> AbstractContextManager[Any]:
    import torch

    return torch.compiler.set_stance("force_eager")


# -- `explain`'s target, called once more from the same state to see its names, or with an edit ------------------------


@dataclass(frozen=True, slots=True)
class _Hearing:
    """What hears of objects, from where the state of the first call is there."""

    objects: Listener

    def apply(self) -> AbstractContextManager[None]:
        return self.objects.heard()


class CallRerunner(ABC):
    """The way to make one call of the program's again; all is put back after it.

    `region`: makes what looks at the operations of one.
    """

    def __init__(self, region: Callable[[], Region]) -> None:
        self._region = region

    @abstractmethod
    def _run(self, region: Region | None, live: Meanwhile | None = None) -> str | None:
        """Make the call from the state of the first; gives why that did not come to its end."""

    def visits(
        self, path: str, text: str, line: int, edited: SwappedTexts | None = None, mends: Mended = ()
    ) -> Visits | str:
        """The visits of the function at a line of a file whose text that is; or why there are none."""
        from whynan.verify.in_place.visits import record_visits

        del mends
        try:
            with (
                nullcontext() if edited is None else edited.apply(),
                record_visits(path, text, line) as (recorder, swap),
            ):
                why = self._run(None)
        except UsageError as error:
            return error.what
        if not recorder.visits.visits:
            return why or "; ".join(swap.left) or "the target did not come there when it was called again"
        return recorder.visits

    def hear(self, objects: Heard) -> Heard | str:
        """What hears of the objects that the target uses, once it has; or why it has not."""
        return self._run(None, _Hearing(objects)) or objects

    def trial(
        self, path: str, before: str, after: str, live: Meanwhile | None = None, mends: Mended = ()
    ) -> Report | str:
        """The report of a call with another text of a file, and argument of live objects; or why there is none."""
        from whynan.verify.in_place.swap import swap_code

        del mends
        region = self._region()
        try:
            with swap_code(path, before, after) as swap:
                if live is None and not swap.swapped:
                    return "; ".join(swap.left) or "no function of the target is changed by it"
                why = self._run(region, live)
        except SyntaxError as error:
            return f"the edited text is no Python ({error.msg})"
        return with_surroundings(region.report, region.trace) if why is None else why

    def course(self, path: str = "", before: str = "", after: str = "") -> str:
        """Why the steps of a training are not looked at."""
        del path, before, after
        return "a call is no training"


class TargetRerunner(CallRerunner):
    """The way to run the target of an `explain` again."""

    def __init__(self, call: Call, region: Callable[[], Region]) -> None:
        super().__init__(region)
        self._call = call

    def _run(self, region: Region | None, live: Meanwhile | None = None) -> str | None:
        """Call the target from the state of the first call; gives why that did not come to its end."""
        watching = self._region().watching if region is None else region.watching
        if not self._call.rewind(watching):
            return sentence(FAILED)
        try:
            # the state of the first call has what the objects had
            with nullcontext() if live is None else live.apply(), nullcontext() if region is None else _entered(region):
                self._call.call_for_fix(watching)
        except Exception as error:
            return f"the target raised {exception_text(error)}"
        finally:
            self._call.restore(watching)
        return sentence(FAILED) if watching.failed else None


def _entered(region: Region) -> AbstractContextManager[object]:
    # what an earlier run holds in cycles would be taken for what this one holds at its end
    collect()
    return region
