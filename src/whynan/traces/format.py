"""The format ``whynan.trace/1``: what lies in a trace's folder, how large it may be, and the layout of an event."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.records import Note

if TYPE_CHECKING:
    import numpy as np

SCHEMA: Final = "whynan.trace/1"
RUN: Final = "run.json"
FACTS: Final = "facts.json"
REPORT: Final = "report.json"
REPLAY: Final = "replay-{}"
"""The folder of a replay, by its number from 1: a trace of its own in that of a run."""
"""The report of a redacted run: with the values gone, no rule could recognise a birth again."""
EVENTS: Final = "events"
RANGES: Final = "ranges.jsonl"
OPERATORS: Final = "operators.jsonl"
NODES: Final = "nodes.jsonl"
MODULES: Final = "modules.jsonl"
SITES: Final = "sites.jsonl"
TABLES: Final = (OPERATORS, NODES, MODULES, SITES)
"""A line each; an event names a line by its number, from 0. Line 0 of all but the operators is ``null``: none."""

TEMPORARY: Final = ".tmp"
"""The end of the name of a file that is not whole yet."""

SEGMENT: Final = 1 << 16
"""Events in one segment at most."""
MOST_DOCUMENT_BYTES: Final = 64 << 20
"""Of ``run.json`` and ``facts.json``."""
MOST_TABLE_BYTES: Final = 256 << 20
MOST_LINE_BYTES: Final = 1 << 20
MOST_LINES: Final = 1 << 22

PHASES: Final = ("forward", "backward", "accumulation", "optimizer")
"""The phases of events by number."""


NO_FACTS: Final = Note.of("no_facts")
"""The note of a report that was made of what a run has left."""
FAILED: Final = Note.of("whynan_failed")
"""The note of a run of which whynan has not seen all, by a fault of its own."""


def segment_name(number: int) -> str:
    """The file of a segment: ``00000000.npy``."""
    return f"{number:08d}.npy"


def event_dtype() -> np.dtype[np.void]:
    """One event: little-endian, packed, 33 bytes.

    ``ordinal`` from 0, rising; ``operator``, ``site``, ``module`` and ``node`` are lines of the tables; ``phase`` a
    number of ``PHASES``; ``step`` 1 + the attempts of the optimizer that has made most, 0 while none has stepped;
    ``micro`` which backward since that, from 1.
    """
    import numpy as np

    fields = [("ordinal", "<i8"), *((name, "<u4") for name in _NUMBERS), ("phase", "|u1")]
    return np.dtype(fields)


_NUMBERS: Final = ("operator", "site", "module", "node", "step", "micro")
