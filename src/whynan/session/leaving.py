"""A report that is left for the process that waits: a bad step that no replay explains, and a second run might."""

# pyright: strict

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.failure import report_internal_error
from whynan.capture.ranks import is_one_of_several
from whynan.session.confined import version
from whynan.session.signatures import Signature, place_of

if TYPE_CHECKING:
    from whynan.capture.torch.judging import Fault
    from whynan.capture.torch.watch import Guard
    from whynan.config import Options
    from whynan.records import Report
    from whynan.session.outward import Outward
    from whynan.session.training import Training

MOST_SECONDS: Final = 60.0
"""So long a program may have taken to come to its bad step, if it is to be run a second time."""
NOT_AGAIN: Final = "no second run: {}"
_STREAMS: Final = 2
"""The last descriptor of those."""
FIRST: Final = "first.json"
WANTED: Final = "wanted.json"


class Leaving:
    """Knows, from the bad step on, whether a second run of the program may be made, or why not.

    `folder`: where the waiting process finds what is left. `began`: when the program did, by ``time.monotonic``.
    """

    def __init__(self, options: Options, outward: Outward, folder: str, began: float) -> None:
        self._options = options
        self._outward = outward
        self._folder = folder
        self._began = began
        self._wanted: dict[str, Any] | None = None
        self.refused: str | None = None

    def hear(self, training: Training) -> None:
        """Be told of the bad step of a program; what a replay of it does is no doing of the program's."""
        if wanted(self._options):
            self._outward.elsewhere = lambda: training.guard.here.replaying
            training.unexplained = lambda fault: self._note(fault, training.guard)

    def _note(self, fault: Fault, guard: Guard) -> None:
        """What happens after the bad step counts no more."""
        try:
            seconds = time.monotonic() - self._began
            self.refused = self._refused(fault, guard, seconds)
            if self.refused is None:
                self._wanted = {"signature": Signature.of(fault, guard).stored(), "seconds": seconds}
        except Exception:
            report_internal_error()

    def told(self, report: Report) -> Report:
        """A report that also says why the program is not run a second time, where it is not."""
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

    def _refused(self, fault: Fault, guard: Guard, seconds: float) -> str | None:
        if self._outward.first is not None:
            return f"it {self._outward.first}"
        if is_one_of_several():
            return "it is one of several processes"
        if fault.lag:
            return "the step was read after it was made"
        if fault.skipped:
            return "a loss scaler skips the step"
        if place_of(fault.optimizer, guard) < 0:
            return "its optimizer cannot be told from others"
        if seconds > MOST_SECONDS:
            return f"it took {seconds:,.0f} seconds to that step, and {MOST_SECONDS:.0f} is the most"
        if not version():
            return "this system cannot keep it from writing files (Linux's Landlock can)"
        try:
            # opened by a library's own code, which Python is not told of
            return "it has a socket open" if has_connections() else None
        except OSError:
            return "what it has open cannot be seen"


def has_connections() -> bool:
    """Whether this process holds sockets other than local ones and its standard streams (Linux).

    Raises ``OSError`` where that cannot be seen.
    """
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            if number <= _STREAMS or not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as other:
                if other.family != socket.AF_UNIX:
                    return True
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # closed meanwhile
    return False


def wanted(options: Options) -> bool:
    """Whether a second run is what was asked for: somebody reads its report, and nobody has the first one's place."""
    heard = not options.quiet or options.json is not None
    return (
        options.second_run and heard and options.on_nonfinite != "raise" and not options.pdb and options.trace is None
    )


def with_note(report: Report, note: str) -> Report:
    """A report with one more note: before the hint, which comes last."""
    notes = list(report.coverage.notes)
    at = next((i for i, known in enumerate(notes) if known.startswith("whynan run --start-step")), len(notes))
    notes.insert(at, note)
    return report.model_copy(update={"coverage": report.coverage.model_copy(update={"notes": tuple(notes)})})
