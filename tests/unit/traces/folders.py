"""Traces on disk, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.unit.analysis.facts import birth, sink, trace
from whynan.records import ExitStatus, Run
from whynan.traces import Trace
from whynan.traces import format as layout
from whynan.traces.format import Meant
from whynan.traces.writer import TraceWriter

RUN = Run(command="train.py", exit_status=ExitStatus(script=None, whynan=0), versions={"whynan": "0.1.0"})
FOUND = trace([birth(1), birth(2, line=2, scope=(0,))], [sink(1), sink(2, kind="gradient", name="w")])


def events(start: int, stop: int, **fields: int) -> NDArray[np.void]:
    """Events of these ordinals, alike in everything else."""
    made = np.zeros(stop - start, layout.event_dtype())
    made["ordinal"] = np.arange(start, stop)
    for name, value in fields.items():
        made[name] = value
    return made


def tables(writer: TraceWriter) -> None:
    """One operator, one node, one module and one site."""
    writer.append(layout.OPERATORS, ['"aten.log.default"'])
    writer.append(layout.NODES, ["null", '"LogBackward0"'])
    writer.append(layout.MODULES, ["null", '"net.head"'])
    writer.append(layout.SITES, ["null", '{"site": {"file": "net.py", "line": 1}, "library_site": null}'])


def recorded(directory: Path, *, facts: Trace | None = FOUND, finished: bool = True, segments: int = 2) -> TraceWriter:
    """A small trace in a folder: so many segments of three events, and facts."""
    writer = TraceWriter(directory)
    writer.meant = lambda: (Meant(pattern="WN5", reason="known"),)
    writer.begin(RUN, {"memory": None})
    tables(writer)
    for number in range(segments):
        assert writer.segment(events(3 * number, 3 * number + 3, node=1, module=1, site=1, phase=1))
    if facts is not None:
        assert writer.facts(facts, {"net.py": "0" * 64}, 0)
    if finished:
        writer.end(RUN.model_copy(update={"exit_status": ExitStatus(script=0, whynan=1)}))
    assert writer.note is None
    return writer


def document(path: Path) -> Any:
    """A JSON document of a trace."""
    return json.loads(path.read_text(encoding="utf-8"))


def change(path: Path, *place: str | int, to: Any) -> None:
    """Change one thing in a JSON document."""
    held = whole = document(path)
    for part in place[:-1]:
        held = held[part]
    held[place[-1]] = to
    path.write_text(json.dumps(whole), encoding="utf-8")
