"""Losses on whose finiteness the program decides: to end, to leave its loop, to skip the step."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from whynan.capture.torch.event_log import Held
from whynan.capture.torch.shadow_memory import is_bad, is_readable
from whynan.capture.torch.sites import ACCUMULATION, BACKWARD
from whynan.records import ChainLink, Note, Site
from whynan.source.decisions import Decision, decision
from whynan.source.positions import file_of_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.records import SinkKind
    from whynan.traces import Sink

    Measure = Callable[[Tensor, SinkKind, str | None, bool], list[Sink]]
    """The sinks that a tensor makes, of this kind, by this name; whether they are fatal."""

_MOST_EVENTS: Final = 64
"""So many events behind a number are looked at for where it comes from."""


def decision_sinks(context: TraceContext, tensor: Tensor, value: Any, measure: Measure) -> list[Sink]:
    """The losses on which the program decides where it has read a tensor.

    `value`: what Python was given: the number, or the answer where the tensor is one of a comparison or a test.
    """
    number = type(value) in (float, bool)
    if not number or not context.marked or (type(value) is float and value - value == 0):
        return []
    read = [tensor] if tensor.is_floating_point() else list(_compared(context, tensor))
    bad = [each for each in read if context.state_of(each) is not None and is_readable(each) and is_bad(each)]
    made = decision(sys._getframe(1), value) if bad else None
    if made is None:
        return []
    found: list[Sink] = []
    for each in bad:
        comes = _comes_from(context, each)
        if _is_fatal(comes, made):
            found += _sinks(measure, each, made, comes)
    # a best loss that begins at Inf is compared, and not tested
    return [sink for sink in found if made.tests or not _is_literal(context, sink)]


def _is_fatal(comes: str, made: Decision) -> bool:
    """Whether a decision is one on a loss, or on gradients that no step is made of any more."""
    if comes == "gradient":
        return made.does != "skips"
    return comes == "graph" or made.does == "ends"


def _is_literal(context: TraceContext, sink: Sink) -> bool:
    """Whether a number is one that the program wrote."""
    return bool(sink.labels) and all(context.labels.birth(label).label_kind == "literal" for label in sink.labels)


def _sinks(measure: Measure, tensor: Tensor, made: Decision, comes: str) -> Iterator[Sink]:
    kind: SinkKind
    if comes == "gradient":
        kind, what = "gradient", "gradients"
    elif comes == "forward":
        kind, what = "observed", "tested"
    else:
        kind, what = ("loss", "loss") if tensor.numel() == 1 else ("output", "tested")
    site = Site(file=file_of_site(made.file), line=made.line, function=made.function.replace("<locals>.", ""))
    for sink in measure(tensor, kind, None, True):
        said = Note.create("decided", does=made.does, tests=what, held=sink.value)
        yield replace(sink, decision=ChainLink(role="sink", op=None, site=site, typed_summary=said))


def exception_link(place: Site, *, of: Literal["held", "given"] = "held") -> ChainLink:
    """That the program has ended by an exception for what it held, or an operation was given, as NaN or Inf."""
    said = Note.create("decided", does="ends", tests=of, held=None)
    return ChainLink(role="sink", op=None, site=place, typed_summary=said)


def _compared(context: TraceContext, answer: Tensor) -> Iterator[Tensor]:
    """The numbers that a tensor of answers was made of."""
    waiting, known = [context.rows.writer_of(answer)], set[int]()
    while waiting and len(known) < _MOST_EVENTS:
        writer = waiting.pop()
        kept = None if writer in known else context.rows.operands_at(writer)
        known.add(writer)
        for held in _held(kept.held) if kept is not None else ():
            row = context.rows.get(held.writer)
            if held.alias.is_floating_point() and not (row is not None and row.operator.base == "abs"):
                yield held.alias
            elif held.alias.is_floating_point():
                # `isfinite` asks it of the magnitude
                waiting.append(held.writer)
            elif held.alias.dtype is torch.bool:
                waiting.append(held.writer)


def _comes_from(context: TraceContext, tensor: Tensor) -> str:
    """Where a number comes from: what a gradient can go back through, a forward without one, or a gradient."""
    if tensor.requires_grad:
        return "graph"
    lanes = (*context.lanes.program, *context.lanes.engines)
    differentiated = {entry[3] for lane in lanes for entry in lane.nodes.values()}
    waiting, known = [context.rows.writer_of(tensor)], set[int]()
    found = "forward"
    while waiting and len(known) < _MOST_EVENTS:
        writer = waiting.pop(0)
        row = None if writer in known else context.rows.get(writer)
        known.add(writer)
        if row is None:
            continue
        if row.phase in (BACKWARD, ACCUMULATION):
            found = "gradient"
            continue
        if writer in differentiated:
            return "graph"
        kept = context.rows.operands_at(writer)
        waiting += [held.writer for held in _held(kept.held)] if kept is not None else []
    return found


def _held(values: list[Any]) -> Iterator[Held]:
    for value in values:
        if isinstance(value, Held):
            yield value
        elif isinstance(value, list):
            yield from _held(value)  # pyright: ignore[reportUnknownArgumentType]
