"""The format ``whynan.trace/1``: what lies in a trace's folder, how large it may be, and the layout of an event."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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


UNFINISHED: Final = (
    "this trace is unfinished: its run was killed, still goes on, or could write no more, and what it did after "
    "{events:,} operations is not known"
)
NO_OTHERS: Final = "nothing of this process was looked at, and nothing is known of those beside it"
NO_FACTS: Final = "the trace holds no facts: its run was over before any were written"
"""Notes of a report that was made of what a run has left."""
FAILED: Final = "whynan met an error of its own and stopped looking: what follows it was not seen"
"""The note of a run of which whynan has not seen all, by a fault of its own."""
WATCHED: Final = "{steps} watched: the loss and the gradients of each were finite"
GRAPHS: Final = "{replays} of CUDA graphs: what ran inside was not looked at"
"""The note of a training in which no step went bad."""
GIVEN: Final = "what is bad in {outputs} was given: {literals}"
"""The note of a run whose outputs are bad by literals alone: none of its operations has made a number bad."""


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
