"""Births and sinks made by hand."""

from __future__ import annotations

from typing import Any

from whynan.records import BirthKind, Coverage, Element, Note, Phase, SinkKind, Site
from whynan.traces import Birth, Event, Sink, Trace

NAN, INF = float("nan"), float("inf")


def site(line: int = 1) -> Site:
    return Site(file="net.py", line=line, column=5, end_line=line, end_column=15, code="torch.f(x)", function="net")


def birth(
    label: int,
    *,
    value: float = NAN,
    line: int = 1,
    ordinal: int | None = None,
    phase: Phase = "forward",
    op: str | None = "aten.log.default",
    kind: BirthKind = "invalid",
    literal: bool = False,
    note: Note | str | None = None,
    **more: Any,
) -> Birth:
    """A birth with one bad element of four; its note may be a sentence that is known as text only."""
    if isinstance(note, str):
        note = Note.create("written", sentence=note)
    element = Element(index=(0,), shape=(4,), dtype="float32", value=value, count=1, total=4, operands=())
    event = Event(label if ordinal is None else ordinal, op, phase, site(line))
    return Birth(
        label, "literal" if literal else "birth", event, "literal" if literal else kind, element, note=note, **more
    )


def sink(*labels: int, kind: SinkKind = "loss", name: str | None = None, fatal: bool = True, **more: Any) -> Sink:
    """A sink that one bad element of four with these labels arrives in."""
    return Sink(kind, name, more.pop("bad", 1), 4, frozenset(labels), fatal, **more)


def trace(births: list[Birth], sinks: list[Sink], **more: Any) -> Trace:
    """A whole trace; it has seen a fatal sink if one of its own is."""
    more.setdefault("fatal_seen", any(s.fatal for s in sinks))
    return Trace(births, sinks, Coverage(events=9, eager=9, compiled_regions=0), **more)
