"""Whether the fixes of a report can be made of what the report says, as ``whynan fix --apply`` makes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from whynan.report.fixes.proposals import offers
from whynan.report.json import parse_report, to_json
from whynan.run.fix.apply import regenerate_text
from whynan.run.fix.file import open_editable

if TYPE_CHECKING:
    from pathlib import Path

    from whynan.records import Report


def check(report: Report, folder: Path | None = None) -> int:
    """Make every change of the source that a report of a run in a folder offers; gives how many there were."""
    made = 0
    for offer in offers(parse_report(to_json(report).encode())):
        site = offer.finding.site
        if offer.fix.kind != "source" or offer.fix.patch is None or site is None:
            continue
        if "\\udc" in site.file:
            # a name that is no UTF-8 stands escaped in a document, and is no path any more
            continue
        file = offer.file
        assert file is not None
        text = open_editable(os.path.realpath(os.path.join(folder or os.getcwd(), file)), folder=os.sep).text
        edited = regenerate_text(file, text, offer.finding, offer.fix)
        assert isinstance(edited, str), (offer.fix.title, edited)
        assert edited != text
        made += 1
    return made
