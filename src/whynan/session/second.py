"""A second run of a program, from within: it is traced up to the bad step of the first, compared, and ended there."""

# pyright: strict

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from whynan.config import Options
from whynan.records import Replay
from whynan.report.values import count_text
from whynan.session import capsules
from whynan.session.proving import Once
from whynan.session.region import Region
from whynan.session.signatures import Signature, place_of
from whynan.session.watching import Watched

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import NoReturn

    from whynan.capture.torch.judging import Fault
    from whynan.records import Report

SECOND: Final = "second.json"
CAPSULE: Final = "capsule"
WHY: Final = "why"
"""The file that says why a second run is not to be used."""
NO_TRIAL: Final = "it takes a run of the whole program to see this step again, and none was made for the fix"
_NEVER: Final = 1 << 62


class Second:
    """The second run of one program, of which ``told`` says what was asked for.

    ``apart`` sets its modules and paths aside for as long as whynan works; ``out`` ends the process at once.
    """

    def __init__(
        self, told: str, folder: str, apart: Callable[[], AbstractContextManager[None]], out: Callable[[int], NoReturn]
    ) -> None:
        from whynan.capture.torch.standing import Unmarked
        from whynan.capture.torch.watch import Guard
        from whynan.session.attended import MEMORY

        document: dict[str, Any] = json.loads(told)
        options = Options.restored(document["options"])
        self.options = options if options.memory is not None else replace(options, memory=MEMORY)
        self._command: str = document["command"]
        self._wanted = Signature.restored(document["signature"])
        self._folder, self._apart, self._out = folder, apart, out
        self._guard = Guard(explain=self._met, deliver=_nothing, marking=Unmarked(self._stepped))
        self._keeper = capsules.keeper_for(self.options)
        watched = Watched(threads=True, first_step=1 if self._wanted.step == 1 else _NEVER, keeper=self._keeper)
        self._region = Region(self.options, command=self._command, watched=watched, quiet=True)

    def begin(self) -> None:
        """Run up to the step."""
        if self.options.baseline is not None:
            from whynan.session.baseline import Baseline

            self._region.baseline = Baseline.read(self.options.baseline)
        # first: it hears of a step before the guard does
        self._region.__enter__()
        self._guard.install()

    def end(self, error: BaseException | None = None) -> None:
        """The program has ended, and did not come to the step."""
        how = "ended" if error is None else f"ended by {type(error).__name__}"
        self._leave_off(f"it {how} before it came to step {self._wanted.step}")

    def forked(self) -> None:
        """In a child of the program's: nothing is looked at there."""
        self._guard.on = False
        self._region.desert()

    def _stepped(self) -> None:
        """A step was made: from the one before the bad one on, everything is looked at."""
        known = self._guard.optimizers()
        at = self._wanted.optimizer
        if at < len(known) and self._guard.attempts(known[at]) == self._wanted.step - 1:
            self._region.watching.tell(lambda capture: capture.begin_in_the_midst(self._wanted.step))

    def _met(self, fault: Fault) -> None:
        """A step is bad: perhaps the one that is looked for."""
        place = place_of(fault.optimizer, self._guard)
        if (place, fault.step) != (self._wanted.optimizer, self._wanted.step):
            # as a point that is tried and not kept, or one that is meant
            return
        with self._apart():
            found = Signature.of(fault, self._guard)
            if found != self._wanted:
                self._leave_off(f"{_difference(found, self._wanted)} than in the first run")
            self._region.end(early=True)
            self._region.prove(Once(NO_TRIAL))
            self._hand_over(self._region.report)

    def _hand_over(self, report: Report) -> NoReturn:
        from whynan.report.json import to_json
        from whynan.session.files import write_text

        meant = any(" is allowed" in note for note in report.coverage.notes)
        if not report.findings and not meant:
            self._leave_off("nothing bad was born in it")
        replay = Replay(kind="rerun", faithful=True, why=_same(self._wanted))
        report = report.model_copy(update={"run": report.run.model_copy(update={"replay": replay})})
        if self.options.capsule is not None:
            within = replace(self.options, capsule=os.path.join(self._folder, CAPSULE))
            report = capsules.packed(report, self._keeper, within, {})
        if self.options.redact:
            from whynan.report.redaction import redacted

            report = redacted(report)
        write_text(os.path.join(self._folder, SECOND), to_json(report))
        self._out(0)

    def _leave_off(self, why: str) -> NoReturn:
        from whynan.session.files import write_text

        write_text(os.path.join(self._folder, WHY), why)
        self._out(0)


def _nothing(made: object, fault: Fault) -> None:
    """What a bad step was that is not the one: nobody asks."""
    del made, fault


def _same(wanted: Signature) -> str:
    what = [count_text(len(wanted.losses), "loss", "losses")] if wanted.losses else []
    what += [count_text(len(wanted.bad), "bad gradient")] if wanted.bad else []
    return f"{' and '.join(what)} identical, run again from the program's beginning"


def _difference(found: Signature, wanted: Signature) -> str:
    said = {"weights": "other weights", "random": "other random numbers", "losses": "other losses"}
    other = (text for name, text in said.items() if getattr(found, name) != getattr(wanted, name))
    return next(other, "other bad gradients")
