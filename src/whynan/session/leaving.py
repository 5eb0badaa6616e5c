"""A bad step that no replay explains, left for the process that waits: a further run of the program may explain it."""

# pyright: strict

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.failure import report_internal_error
from whynan.capture.ranks import is_one_of_several
from whynan.session.signatures import Signature, place_of

if TYPE_CHECKING:
    from whynan.capture.torch.judging import Fault
    from whynan.capture.torch.watch import Guard
    from whynan.config import Options
    from whynan.records import Report
    from whynan.session.training import Training

NOT_AGAIN: Final = "no second run: {}"
FIRST: Final = "first.json"
WANTED: Final = "wanted.json"


class Leaving:
    """Knows, from the bad step on, what a further run of the program has to come to, or why none can explain it.

    `folder`: where the waiting process finds what is left. `began`: when the program did, by ``time.monotonic``.
    """

    def __init__(self, options: Options, folder: str, began: float) -> None:
        self._options = options
        self._folder = folder
        self._began = began
        self._wanted: dict[str, Any] | None = None
        self.refused: str | None = None

    def hear(self, training: Training) -> None:
        """Be told of the bad step of a program."""
        training.unexplained = lambda fault: self._note(fault, training.guard)

    def _note(self, fault: Fault, guard: Guard) -> None:
        try:
            self.refused = _refused(fault, guard)
            if self.refused is None:
                seconds = time.monotonic() - self._began
                self._wanted = {"signature": Signature.of(fault, guard).stored(), "seconds": seconds}
        except Exception:
            report_internal_error()

    def told(self, report: Report) -> Report:
        """A report that also says why the program is not run again, where it is not."""
        return report if self.refused is None else with_note(report, NOT_AGAIN.format(self.refused))

    def leave(self, report: Report) -> bool:
        """Leave a report, and what a second run has to come to; False where that cannot be, or is not wanted."""
        if self._wanted is None:
            return False
        try:
            return self._leave(report)
        except Exception:
            report_internal_error()
            return False

    def _leave(self, report: Report) -> bool:
        from whynan.report.json import to_json
        from whynan.session.files import write_text

        if self._options.redact:
            from whynan.report.redaction import redacted

            report = redacted(report)
        try:
            write_text(os.path.join(self._folder, FIRST), to_json(report))
            write_text(os.path.join(self._folder, WANTED), json.dumps(self._wanted))
        except OSError:
            # the program has cleared away the folder
            return False
        return True


def _refused(fault: Fault, guard: Guard) -> str | None:
    if is_one_of_several():
        return "it is one of several processes"
    if fault.late is not None:
        return "the step was read after it was made"
    if fault.skipped:
        return "a loss scaler skips the step"
    return "its optimizer cannot be told from others" if place_of(fault.optimizer, guard) < 0 else None


def with_note(report: Report, note: str) -> Report:
    """A report with one more note: before the hint, which comes last."""
    notes = list(report.coverage.notes)
    at = next((i for i, known in enumerate(notes) if known.startswith("whynan run --start-step")), len(notes))
    notes.insert(at, note)
    return report.model_copy(update={"coverage": report.coverage.model_copy(update={"notes": tuple(notes)})})
