"""Facts of any content that the record types allow."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from tests.unit.report.strategies import (
    COUNT,
    ELEMENTS,
    FORWARD_OPERANDS,
    LINKS,
    RANGES,
    SHAPE,
    SITES,
    TEXT,
    few,
    some,
)
from whynan.records import BirthKind, Coverage, Data, Phase, SinkKind
from whynan.traces import Birth, Event, Sink, Trace
from whynan.traces.facts import LabelKind

LABELS = (1, 2, 3)
SCOPES = 2

DATA = st.builds(
    Data,
    kind=st.sampled_from(["batch", "numpy", "file"]),
    name=some(TEXT),
    file=some(TEXT),
    site=some(SITES),
    batch=some(COUNT),
    passed=some(COUNT),
    worker=some(COUNT),
    rows=SHAPE,
    n_rows=COUNT,
    indices=few(COUNT | TEXT),
    in_order=st.booleans(),
)
EVENTS = st.builds(
    Event,
    ordinal=COUNT,
    op=some(TEXT),
    phase=st.sampled_from(get_args(Phase)),
    site=some(SITES),
    library_site=some(SITES),
    grad_fn=some(TEXT),
    forward_op=some(TEXT),
    step=some(COUNT),
    micro=some(COUNT),
    recomputed=st.booleans(),
)
SOME_LABELS = st.frozensets(st.sampled_from(LABELS))
SINKS = st.builds(
    Sink,
    kind=st.sampled_from(get_args(SinkKind)),
    name=some(TEXT),
    bad=COUNT,
    total=COUNT,
    labels=SOME_LABELS,
    fatal=st.booleans(),
    damage=st.booleans(),
    counts=st.dictionaries(SOME_LABELS, COUNT, max_size=2),
    owner=some(COUNT),
)


def births(label: int) -> st.SearchStrategy[Birth]:
    """A birth of this label."""
    return st.builds(
        Birth,
        label=st.just(label),
        label_kind=st.sampled_from(get_args(LabelKind)),
        event=EVENTS,
        kind=st.sampled_from(get_args(BirthKind)),
        element=ELEMENTS,
        forward_operands=few(FORWARD_OPERANDS),
        causes=SOME_LABELS,
        cause_links=few(LINKS),
        steps=st.lists(LINKS, max_size=2),
        steps_omitted=COUNT,
        occurrences=COUNT,
        modules=st.lists(TEXT, max_size=2, unique=True).map(dict.fromkeys),
        scope=st.lists(st.integers(0, SCOPES - 1), max_size=2).map(tuple),
        note=some(TEXT),
        named=st.booleans(),
        computed=st.booleans(),
        data=some(DATA),
    )


def traces() -> st.SearchStrategy[Trace]:
    """Any facts, of births with these labels and of sinks that know no others."""
    return st.builds(
        Trace,
        births=st.tuples(*(births(label) for label in LABELS)).map(list),
        sinks=st.lists(SINKS, max_size=3),
        coverage=st.builds(
            Coverage, events=COUNT, eager=COUNT, compiled_regions=COUNT, skipped_steps=COUNT, notes=few(TEXT)
        ),
        ranges=few(RANGES),
        fatal_seen=st.booleans(),
        unexplained=st.lists(SINKS, max_size=1),
        failed=st.booleans(),
    )


def same(value: Any) -> str:
    """What tells two facts apart: NaN equals itself here, sets and dicts have an order."""
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(same, value)))}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{same(k)}: {same(v)}' for k, v in value.items()))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(same, value))}]"
    fields = getattr(type(value), "__dataclass_fields__", None) or getattr(type(value), "model_fields", None)
    if fields is None:
        return repr(value)
    return f"{type(value).__name__}({', '.join(f'{name}={same(getattr(value, name))}' for name in fields)})"
