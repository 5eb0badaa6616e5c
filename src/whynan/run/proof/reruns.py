"""The ways to run once more what a report is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from typing import TypeAlias

    from whynan.records import Report
    from whynan.records.report import Further
    from whynan.run.proof.arguments import Heard
    from whynan.training.course import Course
    from whynan.verify.in_place.live_objects import Meanwhile
    from whynan.verify.in_place.swap import SwappedTexts
    from whynan.verify.in_place.visits import Visits

    Mended: TypeAlias = tuple[Further, ...]

NOT_ALIKE: Final = "not all ranks come to the same edit by themselves"
RERUN: Final = "whynan run --rerun runs it again to prove fixes"


class RunOnce(str):
    """Why nothing was proved, where a further run of the whole program would prove it."""

    __slots__ = ()


RUN_ONCE: Final = RunOnce(f"the program was run once: {RERUN}")

INTERRUPTED: Final = "not tried (interrupted)"


class Rerunner(Protocol):
    """A way to run once more what a report is of; all is put back after it, and nothing that fails in it is raised."""

    def visits(
        self, path: str, text: str, line: int, edited: SwappedTexts | None = None, mends: Mended = ()
    ) -> Visits | str:
        """The visits of the function at a line of a file whose text that is; or why there are none.

        ``edited``: what runs in place of what the program has loaded, where the text is that of an edited file;
        ``mends``: what that mends beside the finding that it is of.
        """
        ...

    def hear(self, objects: Heard) -> Heard | str:
        """What hears of the objects that the run uses, once it has; or why it has not."""
        ...

    def trial(
        self, path: str, before: str, after: str, live: Meanwhile | None = None, mends: Mended = ()
    ) -> Report | EditedRun | str:
        """The report of a run with another text of a file, and argument of live objects; or why there is none.

        ``mends``: what it mends beside the finding that it is of.
        """
        ...

    def course(self, path: str = "", before: str = "", after: str = "") -> Course | str:
        """The steps of a training from its start, with another text of a file; or why it cannot be run from there."""
        ...


@dataclass(frozen=True, slots=True)
class EditedRun:
    """The report of a run with an edit, and what is known of it beside its numbers that are bad."""

    report: Report
    moved: str | None = None
    """That a number which was finite in the first run is another one."""
    further: int | None = None
    """How many more steps it made, where the program's own guard kept it from the first."""
    bad: str | None = None
    """What became bad after the step that the report is of."""
    earlier: tuple[float, ...] = ()
    """The losses of the steps up to that which was bad, and its own with the edit, as far as they are known."""
    later: tuple[float, ...] = ()
    """Those of the steps after it, as they are with the edit."""
    learns: bool = True
    """Whether an element of a gradient was other than 0 in one of those steps, or it is not known."""


@dataclass(frozen=True, slots=True)
class NoRerun:
    """No way to run it again, and why."""

    why: str

    def visits(self, *_: object, **__: object) -> str:
        """Why there is none; of a hearing, a trial and a course as well."""
        return self.why

    hear = trial = course = visits
