"""The path of a finding: cause, birth, steps, sinks, in order of execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.records import ChainLink, Note, Reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from whynan.records import Role
    from whynan.traces import Birth, Sink

_MOST_BACK = 12
"""So many steps of a way back are told."""


def chain(
    birth: Birth, causes: Iterable[Birth], sinks: Iterable[Sink], also: Iterable[Birth] = ()
) -> tuple[ChainLink, ...]:
    """All links of a finding; `also`: births in the backward that this one has led to."""
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
    back = list(dict.fromkeys(link for b in also for link in (_link("step", b), *b.steps)))
    links += back[:_MOST_BACK]
    omitted = birth.steps_omitted + len(back[_MOST_BACK:]) + sum(b.steps_omitted for b in also)
    if omitted:
        links.append(
            ChainLink(role="step", op=None, site=None, typed_summary=Note.create("more_events", count=omitted))
        )
    first: dict[tuple[str, str | None], Reach] = {}
    for sink in sinks:
        reach = _reach(sink)
        first.setdefault((sink.kind, sink.name), reach)
    links += dict.fromkeys(sink.decision for sink in sinks if sink.decision is not None)
    return (*links, *sink_links(first.values()))


def sink_links(reached: Iterable[Reach]) -> Iterator[ChainLink]:
    """The end of a path: each place that it has reached."""
    for reach in reached:
        said = Note.create("reached", sink=reach.kind, tensor=reach.name, n_bad=reach.bad, total=reach.total)
        yield ChainLink(role="sink", op=None, site=None, typed_summary=said)


def _link(role: Role, birth: Birth) -> ChainLink:
    event = birth.event
    return ChainLink(
        role=role,
        op=event.op,
        phase=event.phase,
        site=event.site,
        node=event.node,
        typed_summary=_link_note(birth, role),
    )


def _link_note(birth: Birth, role: Role) -> Note:
    """What a birth did; as a step, whether it is made of what the forward had saved."""
    if birth.note is not None:
        return birth.note
    value = birth.element.value
    word = "NaN" if value is None or value != value else ("Inf" if value > 0 else "-Inf")
    return Note.create("bears", operator=birth.event.op, bad=word, back=role == "step" and bool(birth.causes))


def _reach(sink: Sink) -> Reach:
    return Reach(kind=sink.kind, name=sink.name, bad=sink.bad, total=sink.total, value=sink.value)


def reaches(sinks: Iterable[Sink]) -> tuple[Reach, ...]:
    """What a finding reached, each place once, with the greatest count seen there."""
    best: dict[tuple[str, str | None], Reach] = {}
    for sink in sinks:
        key = (sink.kind, sink.name)
        known = best.get(key)
        if known is None or known.bad < sink.bad:
            best[key] = _reach(sink)
    return tuple(best.values())
