"""Whether the fixes of a report can be made of what the report says, as ``whynan fix --apply`` makes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from unittest import mock

from whynan.fixes import python as source
from whynan.report.fixes.proposals import offers
from whynan.report.json import parse_report, to_json
from whynan.run.fix.apply import Known, edited_files, regenerate_text
from whynan.run.fix.file import open_editable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from whynan.records import Finding, Report
    from whynan.records.intents import FixIntent


def check(report: Report, folder: Path | None = None) -> int:
    """Make every change of the source that a report of a run in a folder offers; gives how many there were."""
    with mock.patch.object(source, "consistent_candidates", _Once()):
        return _check(report, folder)


class _Once:
    """What mends a birth of a text, sought once for all fixes of a report."""

    def __init__(self) -> None:
        self._made: dict[object, Any] = {}

    def __call__(self, text: str, birth: Finding, intents: Sequence[FixIntent]) -> Any:
        key = text, birth.model_dump_json(), tuple(intents)
        if key not in self._made:
            self._made[key] = _consistent_candidates(text, birth, intents)
        return self._made[key]


_consistent_candidates = source.consistent_candidates


def _check(report: Report, folder: Path | None) -> int:
    made = 0
    for offer in offers(parse_report(to_json(report).encode())):
        site = offer.finding.site
        if offer.fix.kind != "source" or offer.fix.patch is None or site is None:
            continue
        if "\\udc" in site.file:
            # a name that is no UTF-8 stands escaped in a document, and is no path any more
            continue
        files = [file for file in edited_files(report, offer) if file is not None]
        paths = {file: os.path.realpath(os.path.join(folder or os.getcwd(), file)) for file in files}
        texts = {file: open_editable(path, folder=os.sep).text for file, path in paths.items()}
        for file, text in texts.items():
            edited = regenerate_text(
                file, text, offer.finding, offer.fix, Known(texts, (*report.findings, *report.damaging))
            )
            assert isinstance(edited, str), (offer.fix.title, edited)
            assert edited != text
        assert files
        made += 1
    return made
