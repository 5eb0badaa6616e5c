"""The range of a value as a record."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.capture.onnx.places import Places, with_module
from whynan.errors import UsageError
from whynan.floats import format_of
from whynan.records import Range

if TYPE_CHECKING:
    from whynan.capture.onnx.execution import Counters, Node


def range_of(places: Places, node: Node, position: int, counted: Counters, ordinal: int) -> Range:
    """What one value that a node wrote holds, as a report tells of it."""
    place = places.of(node, node.outputs[position])
    ends = [abs(end) for end in (counted.finite_min, counted.finite_max) if end is not None]
    greatest = _greatest(counted.dtype)
    return Range(
        event=ordinal,
        op=place.op,
        phase="inference",
        output=position,
        dtype=counted.dtype,
        shape=counted.shape,
        n=counted.n,
        n_nan=counted.n_nan,
        n_posinf=counted.n_posinf,
        n_neginf=counted.n_neginf,
        n_zero=counted.n_zero,
        n_subnormal=counted.n_subnormal,
        finite_min=counted.finite_min,
        finite_max=counted.finite_max,
        headroom=max(ends) / greatest if ends and greatest else None,
        node=places.event(ordinal, node, node.outputs[position]).node,
        value=place.value or None,
        provider=node.provider,
        site=with_module(place.site, place.module),
    )


def _greatest(dtype: str) -> float | None:
    """The greatest number of a dtype; None where it is no floating-point format."""
    if not dtype.startswith(("float", "bfloat")):
        return None
    try:
        return format_of(dtype).max
    except UsageError:
        return None
