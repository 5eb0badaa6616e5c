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
    """The options of a process that a launcher has started, with folders of its own.

    A folder ``trace`` is ``trace.rank1`` of rank 1; the document is one of all ranks.
    """
    if "RANK" not in os.environ:
        return options
    # loaded where it is needed: a command that refuses loads nothing of the capture
    from whynan.capture.ranks import launched

    rank = launched(os.environ)
    if rank is None or rank.number == 0:
        return options
    number = rank.number
    for name in ("trace", "capsule"):
        folder = getattr(options, name)
        if folder is not None:
            own = f"{folder.rstrip(os.sep)}.rank{number}"
            options = replace(options, **{name: own})
            if not options.quiet:
                say(f"rank {number} writes {own}")
    return options


def with_own_document(options: Options) -> Options:
    """The options of a rank that writes a document of its own, since it cannot reach the others."""
    if "RANK" not in os.environ or options.json is None:
        return options
    from whynan.capture.ranks import launched

    rank = launched(os.environ)
    if rank is None or rank.number == 0:
        return options
    options = replace(options, json=None if stream(options.json) is not None else _of_file(options.json, rank.number))
    where = f"writes {options.json}" if options.json else "writes no document: rank 0 writes to that stream"
    if not options.quiet:
        say(f"rank {rank.number} {where}")
    return options


def _of_file(path: str, number: int) -> str:
    stem, suffix = os.path.splitext(path)
    return f"{stem}.rank{number}{suffix}"
