"""Facts of any content that the record types allow."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from tests.unit.report.strategies import (
    COUNT,
    DAMAGES,
    DTYPE,
    ELEMENTS,
    FALLS,
    FORWARD_OPERANDS,
    LINKS,
    NOTES,
    NUMBER,
    RANGES,
    REACHES,
    SHAPE,
    SITES,
    TEXT,
    few,
    some,
)
from whynan.records import Argument, BirthKind, Coverage, Data, Neighbourhood, Operation, Phase, Selection, SinkKind
from whynan.traces import Birth, Event, Silent, Sink, Trace
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
ARGUMENTS = st.builds(
    Argument,
    name=TEXT,
    event=some(COUNT),
    elements=some(COUNT),
    value=some(NUMBER | st.booleans()),
    numbers=some(few(NUMBER | st.booleans())),
    shape=some(SHAPE),
    dtype=some(DTYPE),
    min=some(NUMBER),
    max=some(NUMBER),
)
NEIGHBOURHOODS = st.builds(
    Neighbourhood,
    dialect=st.sampled_from(["aten", "onnx"]),
    middle=COUNT,
    operations=few(
        st.builds(
            Operation,
            event=COUNT,
            op=TEXT,
            hops=st.integers(-8, 7),
            arguments=few(ARGUMENTS),
            shape=some(SHAPE),
        )
    ),
    gone=COUNT,
    left_out=some(st.builds(Selection, op=TEXT, side=TEXT, mask=some(TEXT), line=some(COUNT))),
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
    scale_fall=some(FALLS),
)


SILENT = st.builds(
    Silent,
    event=EVENTS,
    element=ELEMENTS,
    damage=DAMAGES,
    modules=st.lists(TEXT, max_size=2, unique=True).map(dict.fromkeys),
    occurrences=COUNT,
    scope=st.lists(st.integers(0, SCOPES - 1), max_size=2).map(tuple),
    around=some(NEIGHBOURHOODS),
    reaches=few(REACHES),
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
        note=some(NOTES),
        named=st.booleans(),
        computed=st.booleans(),
        data=some(DATA),
        around=some(NEIGHBOURHOODS),
    )


def traces() -> st.SearchStrategy[Trace]:
    """Any facts, of births with these labels and of sinks that know no others."""
    return st.builds(
        Trace,
        births=st.tuples(*(births(label) for label in LABELS)).map(list),
        sinks=st.lists(SINKS, max_size=3),
        coverage=st.builds(
            Coverage, events=COUNT, eager=COUNT, compiled_regions=COUNT, skipped_steps=COUNT, typed_notes=few(NOTES)
        ),
        ranges=few(RANGES),
        fatal_seen=st.booleans(),
        unexplained=st.lists(SINKS, max_size=1),
        failed=st.booleans(),
        silent=st.lists(SILENT, max_size=2),
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
