"""How values grew towards the limit that they have passed: the greatest of some operations before."""

# pyright: strict

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from whynan.rules.facts import said

if TYPE_CHECKING:
    from whynan.records import Argument, Finding, Neighbourhood


def grown(finding: Finding) -> str:
    """`` 6 operations earlier the greatest value was 5480.``; empty where that is not known, or they did not grow."""
    around = finding.around
    if around is None or finding.phase == "backward":
        return ""
    found = _greatest(around, finding.element.dtype)
    last, first = min(found, default=0), max(found, default=0)
    if first <= last or not found[first] or found[first] >= found[last]:
        return ""
    before, at_last = said(found[first]), said(found[last])
    return f" {first} operations earlier the greatest value was {before}, and right before it {at_last}."


def _greatest(around: Neighbourhood, dtype: str) -> dict[int, float]:
    """The greatest magnitude of what was computed in this dtype, by how many operations earlier."""
    found: dict[int, float] = {}
    for operation in around.operations:
        for argument in operation.arguments if operation.hops <= 0 else ():
            size = _size(argument, dtype)
            if size is not None:
                distance = 1 - operation.hops
                found[distance] = max(size, found.get(distance, 0.0))
    return found


def _size(argument: Argument, dtype: str) -> float | None:
    if argument.event is None or argument.dtype != dtype or argument.min is None or argument.max is None:
        return None
    size = max(abs(argument.min), abs(argument.max))
    return float(size) if math.isfinite(size) else None
