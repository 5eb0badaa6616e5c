"""The traces of several ranks: which folders they are, and the one report that they come to."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whynan.errors import UsageError
from whynan.records import Note
from whynan.run.output.run_trace import RANK, RANKS, report_of_directory
from whynan.run.pipeline import fold_report
from whynan.run.ranks.merging import RankReport, merge_ranks
from whynan.traces import format as layout
from whynan.traces.format import RunDocument
from whynan.traces.reader import Folder, read_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.records import Report

_MOST: Final = 1 << 16
"""Ranks of a run."""
_WITHOUT_END: Final = "unfinished", "ended_in_a_replay"
"""The notes of a trace whose run did not come to its end."""


@dataclass(frozen=True, slots=True)
class RankFolders:
    """The traces of one run of so many ranks, by rank; one that is missing, or cannot be read, has none."""

    folders: dict[int, str]
    world: int

    def report(self) -> Report:
        """The one report of all of them; raises ``UsageError`` where none can be read.

        What no rank has written is not known of here: of a collective only that something came through it, and not the
        number of its call.
        """
        ranks: dict[int, RankReport] = {}
        cut: list[Note] = []
        for number, folder in sorted(self.folders.items()):
            with suppress(UsageError):
                ranks[number] = rank = _rank_report(folder)
                if rank.end == "terminated":
                    seen = rank.report.coverage.events
                    cut.append(Note.create("rank_without_end", rank=number, step=_last_step(folder), events=seen))
        if not ranks:
            raise UsageError(
                f"none of the {len(self.folders):,} traces can be read", "give one of their folders to see why"
            )
        merged = merge_ranks(ranks, self.world)
        return merged.model_copy(update={"coverage": merged.coverage.with_notes(*cut)})


def folders_of_ranks(path: str) -> RankFolders | None:
    """The traces of the ranks of a run; None where a path is not of several.

    ``path`` is the trace of one of them, beside which the others stand (``path``, ``path.rank1``, ...), or a folder
    that holds them. Each says itself which rank of how many it is. Raises ``UsageError`` for a folder that holds traces
    of several runs.
    """
    own = _rank_of(path)
    if os.path.lexists(os.path.join(path, layout.RUN)):
        if own is None or own[0] != 0:
            return None
        folder, name = os.path.split(os.path.abspath(path))
        found = [
            (*told, place) for told, place in _traces(folder) if os.path.basename(place).startswith(f"{name}.rank")
        ]
        others = {number: place for number, world, place in found if world == own[1] and number}
        return RankFolders({**others, 0: path}, own[1]) if others else None
    held = list(_traces(path))
    if not held:
        return None
    numbers = {number: place for (number, _), place in held}
    if len({world for (_, world), _ in held}) > 1 or len(numbers) < len(held):
        raise UsageError(f"{path} holds traces of several runs", "give the folder of one of them: that of its rank 0")
    return RankFolders(numbers, held[0][0][1])


def _rank_report(folder: str) -> RankReport:
    report = fold_report(report_of_directory(folder))
    if any(report.coverage.notes_of(kind) for kind in _WITHOUT_END):
        notes = tuple(note for note in report.coverage.typed_notes if note.kind != "unfinished")
        coverage = report.coverage.model_copy(update={"typed_notes": notes})
        # as of one without a trace, nothing is known of what it did after that
        verdict = "inconclusive" if report.verdict == "clean" else report.verdict
        return RankReport(report.model_copy(update={"coverage": coverage, "verdict": verdict}), "terminated")
    return RankReport(report, "stopped" if report.run.exit_status.script is None else "ended")


def _last_step(folder: str) -> int:
    """The step of the last event that a trace holds, or its last replay; 0 where that holds none of a step."""
    with suppress(UsageError):
        return read_trace(Folder(folder).last(layout.REPLAY) or folder).events.last_step
    return 0


def _rank_of(folder: str) -> tuple[int, int] | None:
    """Which rank of how many a trace is of; None where it is of none, or cannot be read."""
    try:
        known = Folder(folder).document(layout.RUN, RunDocument)
    except UsageError:
        return None
    number, world = (None, None) if known is None else (known.options.get(RANK), known.options.get(RANKS))
    if not isinstance(number, int) or not isinstance(world, int) or not 0 <= number < world <= _MOST:
        return None
    return number, world


def _traces(folder: str) -> Iterator[tuple[tuple[int, int], str]]:
    """The traces of ranks in a folder: which rank of how many, and where; none where it cannot be listed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.is_dir(follow_symlinks=False) and os.path.lexists(os.path.join(entry.path, layout.RUN)):
                told = _rank_of(entry.path)
                if told is not None:
                    yield told, entry.path
