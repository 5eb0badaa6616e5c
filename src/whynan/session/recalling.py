"""`explain`'s target, called once more from the same state to see its names, or with an edit."""

# pyright: strict

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from whynan.errors import UsageError
from whynan.report.notes import sentence
from whynan.session.proving import with_surroundings
from whynan.session.region import exception_text
from whynan.traces.format import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from whynan.records import Report
    from whynan.session.calling import Call
    from whynan.session.region import Region
    from whynan.verify.visits import Visits


class Recalling:
    """The way to run the target of an `explain` again; its state is put back after each call.

    `region`: makes what looks at the operations of one.
    """

    def __init__(self, call: Call, region: Callable[[], Region]) -> None:
        self._call = call
        self._region = region

    def visits(self, path: str, text: str, line: int) -> Visits | str:
        """The visits of the function at a line of a file whose text that is; or why there are none."""
        from whynan.verify.visiting import visiting

        try:
            with visiting(path, text, line) as (recorder, swap):
                why = self._run(None)
        except UsageError as error:
            return error.what
        if not recorder.visits.visits:
            return why or "; ".join(swap.left) or "the target did not come there when it was called again"
        return recorder.visits

    def trial(self, path: str, before: str, after: str) -> Report | str:
        """The report of a call in which a file has another text; or why there is none."""
        from whynan.verify.swapping import swapped

        region = self._region()
        try:
            with swapped(path, before, after) as swap:
                if not swap.swapped:
                    return "; ".join(swap.left) or "no function of the target is changed by it"
                why = self._run(region)
        except SyntaxError as error:
            return f"the edited text is no Python ({error.msg})"
        return with_surroundings(region.report, region.trace) if why is None else why

    def _run(self, region: Region | None) -> str | None:
        """Call the target from the state of the first call; gives why that did not come to its end."""
        watching = self._region().watching if region is None else region.watching
        if not self._call.rewind(watching):
            return sentence(FAILED)
        try:
            if region is None:
                self._call.again(watching)
            else:
                with _entered(region):
                    self._call.again(watching)
        except Exception as error:
            return f"the target raised {exception_text(error)}"
        finally:
            self._call.restore(watching)
        return sentence(FAILED) if watching.failed else None


def _entered(region: Region) -> AbstractContextManager[object]:
    # what an earlier run holds in cycles would be taken for what this one holds at its end
    gc.collect()
    return region
