"""The path of a finding: cause, birth, steps, sinks, in order of execution."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.records import ChainLink, Reach

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.records import Role
    from whynan.traces import Birth, Sink

SINK_WORDS = {
    "loss": "the loss",
    "gradient": "the gradient of",
    "parameter": "the parameter",
    "buffer": "the buffer",
    "output": "the output",
    "observed": "read by Python",
}


def chain(
    birth: Birth, causes: Iterable[Birth], sinks: Iterable[Sink], also: Iterable[Birth] = ()
) -> tuple[ChainLink, ...]:
    """All links of a finding; `also`: births that the same cause made after this one."""
    links: list[ChainLink] = []
    for cause in causes:
        links += cause.cause_links
        if cause.cause_links and cause.label_kind == "literal":
            # they tell of it already
            continue
        links.append(_link("cause", cause))
    links += birth.cause_links
    links.append(_link("birth", birth))
    links += birth.steps
    links += [_link("step", b) for b in also]
    if birth.steps_omitted:
        links.append(ChainLink(role="step", op=None, site=None, summary=f"{birth.steps_omitted} more events"))
    seen: set[tuple[str, str | None]] = set()
    for sink in sinks:
        key = (sink.kind, sink.name)
        if key in seen:
            continue
        seen.add(key)
        words = SINK_WORDS[sink.kind] + (f" {sink.name}" if sink.name else "")
        links.append(ChainLink(role="sink", op=None, site=None, summary=f"{words}: {sink.bad} of {sink.total} bad"))
    return tuple(links)


def _link(role: Role, birth: Birth) -> ChainLink:
    event = birth.event
    return ChainLink(role=role, op=event.op, phase=event.phase, site=event.site, node=event.node, summary=_made(birth))


def _made(birth: Birth) -> str:
    if birth.note is not None:
        return birth.note
    value = birth.element.value
    word = "NaN" if value is None or value != value else ("Inf" if value > 0 else "-Inf")
    return f"{birth.event.op or 'a value'} gives {word}"


def reaches(sinks: Iterable[Sink]) -> tuple[Reach, ...]:
    """What a finding reached, each place once, with the greatest count seen there."""
    best: dict[tuple[str, str | None], Reach] = {}
    for sink in sinks:
        key = (sink.kind, sink.name)
        known = best.get(key)
        if known is None or known.bad < sink.bad:
            best[key] = Reach(kind=sink.kind, name=sink.name, bad=sink.bad, total=sink.total)
    return tuple(best.values())
