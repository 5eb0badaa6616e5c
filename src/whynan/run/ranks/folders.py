"""The traces of several ranks: which folders they are, and the one report that they come to."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from whynan.run.output.run_trace import report_of_directory
from whynan.run.pipeline import fold_report
from whynan.run.ranks.merging import RankReport, merge_ranks
from whynan.traces import format as layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.records import Report

_RANK: Final = re.compile(r"(?P<run>.+)\.rank(?P<number>\d{1,6})")


def folders_of_ranks(path: str) -> dict[int, str]:
    """The traces of the ranks of a run, by rank; empty where a path is not of several.

    ``path`` is the trace of rank 0, beside which those of the others stand as ``path.rank1`` and so on, or a folder
    that holds nothing but these.
    """
    if _is_trace(path):
        folder, name = os.path.split(os.path.abspath(path))
        others = {number: entry for run, number, entry in _traces(folder) if run == name and number}
        return {0: path, **others} if others else {}
    held = list(_traces(path))
    # of several runs, no rank is told from another
    return {number: entry for _, number, entry in held} if len({run for run, *_ in held}) == 1 else {}


def report_of_ranks(folders: dict[int, str]) -> Report:
    """The one report of the traces of several ranks; raises ``UsageError`` where one is none.

    What no rank has written is not known of here: of a collective only that something came through it, and not the
    number of its call.
    """
    ranks = {number: _rank_report(folder) for number, folder in folders.items()}
    return merge_ranks(ranks, max(ranks) + 1)


def _rank_report(folder: str) -> RankReport:
    report = fold_report(report_of_directory(folder))
    if report.coverage.notes_of("unfinished"):
        return RankReport(report, "terminated")
    return RankReport(report, "stopped" if report.run.exit_status.script is None else "ended")


def _is_trace(path: str) -> bool:
    return os.path.lexists(os.path.join(path, layout.RUN))


def _traces(folder: str) -> Iterator[tuple[str, int, str]]:
    """The traces in a folder: the name of the run, the rank, and where it is."""
    with os.scandir(folder) as entries:
        for entry in entries:
            named = _RANK.fullmatch(entry.name)
            if entry.is_dir(follow_symlinks=False) and _is_trace(entry.path):
                yield (named["run"], int(named["number"]), entry.path) if named else (entry.name, 0, entry.path)
