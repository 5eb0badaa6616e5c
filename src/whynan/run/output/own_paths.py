"""The files of one of several processes: none writes over another's."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from whynan.run.output.files import stream

if TYPE_CHECKING:
    from whynan.config import Options
from whynan.run.output.delivery import say


def with_own_paths(options: Options) -> Options:
    """The options of a process that a launcher has started: rank 0 has the names that were given, others their own.

    ``report.json`` is ``report.rank1.json`` of rank 1, and a folder ``trace`` is ``trace.rank1``. On an open stream,
    which has room for one document, only rank 0 writes.
    """
    if "RANK" not in os.environ:
        return options
    # loaded where it is needed: a command that refuses loads nothing of the capture
    from whynan.capture.ranks import launched

    rank = launched(os.environ)
    if rank is None or rank.number == 0:
        return options
    number = rank.number
    if options.json is not None:
        options = replace(options, json=None if stream(options.json) is not None else _of_file(options.json, number))
        where = f"writes {options.json}" if options.json else "writes no document: rank 0 writes to that stream"
        if not options.quiet:
            say(f"rank {number} {where}")
    for name in ("trace", "capsule"):
        folder = getattr(options, name)
        if folder is not None:
            own = f"{folder.rstrip(os.sep)}.rank{number}"
            options = replace(options, **{name: own})
            if not options.quiet:
                say(f"rank {number} writes {own}")
    return options


def _of_file(path: str, number: int) -> str:
    stem, suffix = os.path.splitext(path)
    return f"{stem}.rank{number}{suffix}"
