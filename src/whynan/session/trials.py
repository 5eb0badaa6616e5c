"""A program once more with one edit, from within: what it bears then, as far as its run without the edit has come."""

# pyright: strict

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from whynan.records.around import Neighbourhood
from whynan.session.repeated import Repeated, read_document
from whynan.verify.loading import Loaded

if TYPE_CHECKING:
    from whynan.records import Report
    from whynan.session.region import Region
    from whynan.session.repeated import End

TRIAL: Final = "trial"
ASKED: Final = "asked.json"
_REPORT: Final = "report.json"
_ENDED: Final = "ended.json"
_NAMES: Final = ("findings", "damaging")


class Trial(Repeated):
    """The run of a program with another text of one file."""

    def loaded(self) -> Loaded:
        """The edited text."""
        return Loaded({self.asked["path"]: self.asked["text"]}, self.end)

    def passed(self) -> None:
        """At a door; it ends at that at which the run without the edit ended."""
        if self.doors == self.asked["door"]:
            self.over("door")

    def told(self, region: Region, end: End, why: str) -> None:
        """Leave its report, with what the rules read of its surroundings."""
        from whynan.report.json import to_json
        from whynan.session.files import write_text
        from whynan.session.proving import with_surroundings

        report = with_surroundings(region.report, region.trace)
        around = {
            name: [None if f.around is None else f.around.model_dump(mode="json") for f in getattr(report, name)]
            for name in _NAMES
        }
        write_text(os.path.join(self._folder, _REPORT), to_json(report))
        write_text(os.path.join(self._folder, _ENDED), json.dumps({"end": end, "why": why, "around": around}))


def read(folder: str) -> tuple[Report, End, str] | str:
    """What a trial has left: its report, and how it ended; or why there is none."""
    from whynan.report.json import read as read_report

    if not os.path.exists(os.path.join(folder, _ENDED)):
        return "run with it, the program was cut short"
    report = read_report(Path(folder, _REPORT).read_bytes())
    ended = read_document(os.path.join(folder, _ENDED))
    for name in _NAMES:
        parts = cast("list[Any]", ended["around"][name])
        known = [None if part is None else Neighbourhood.model_validate(part) for part in parts]
        changed = (f.model_copy(update={"around": a}) for f, a in zip(getattr(report, name), known, strict=True))
        report = report.model_copy(update={name: tuple(changed)})
    return report, ended["end"], ended["why"]
