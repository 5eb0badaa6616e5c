"""Which output of B is which of A, and how far they are apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whynan.compare.effects import relative_difference
from whynan.compare.fingerprints import NEAR, distance
from whynan.compare.sides.double import is_floating
from whynan.records import OutputError

if TYPE_CHECKING:
    from whynan.compare.sides.operations import Array
    from whynan.compare.stretches import SideRun


def pair_outputs(a: SideRun, b: SideRun, notes: list[str]) -> dict[str, str]:
    """Of each output value of B that of A; what is missing, or comes in another order, is noted."""
    ours = dict(zip(a.side.outputs, a.side.output_values, strict=True))
    theirs = dict(zip(b.side.outputs, b.side.output_values, strict=True))
    named = {theirs[name]: ours[name] for name in theirs if name in ours}
    here = [value for value in ours.values() if value not in named.values()]
    there = [value for value in theirs.values() if value not in named]
    found = {**named, **_unnamed(a, b, here, there, notes)}
    for value in theirs.values():
        if value not in found:
            notes.append(f"the output {value} of B has no partner in A")
    for value in ours.values():
        if value not in found.values():
            notes.append(f"the output {value} of A has no partner in B")
    for other, one in found.items():
        x, y = a.value(one), b.value(other)
        if x is not None and y is not None and x.shape != y.shape:
            notes.append(f"the output {other} of B has the shape {list(y.shape)}, and {one} of A {list(x.shape)}")
    return found


def _unnamed(a: SideRun, b: SideRun, here: list[str], there: list[str], notes: list[str]) -> dict[str, str]:
    """Outputs that have other names: in order, unless their numbers say another one."""
    in_order = dict(zip(there, here, strict=False))
    if all(_fits(a.value(one), b.value(other)) for other, one in in_order.items()) and len(here) == len(there):
        nearer = _by_numbers(a, b, here, there)
        if len(nearer) < len(there) or all(in_order[other] == one for other, one in nearer.items()):
            return in_order
        if all(_far(a.value(in_order[other]), b.value(other)) <= NEAR for other in there):
            return in_order
        notes.append("the outputs of B come in another order than those of A: they were paired by their numbers")
        return nearer
    found = _by_numbers(a, b, here, there)
    for other in there:
        free = [one for one in here if one not in found.values() and _fits(a.value(one), b.value(other))]
        if other not in found and free:
            found[other] = free[0]
    if found and any(in_order.get(other) != one for other, one in found.items()):
        notes.append("outputs were paired by their shapes and numbers, not in their order")
    return found


def _by_numbers(a: SideRun, b: SideRun, here: list[str], there: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for other in there:
        free = [one for one in here if one not in found.values() and _fits(a.value(one), b.value(other))]
        best = min(free, key=lambda one: _far(a.value(one), b.value(other)), default=None)
        if best is not None and _far(a.value(best), b.value(other)) < NEAR:
            found[other] = best
    return found


def _fits(one: Array | None, other: Array | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape and one.dtype.kind == other.dtype.kind


def _far(one: Array | None, other: Array | None) -> float:
    return np.inf if one is None or other is None else distance(other, one)


def output_errors(a: SideRun, b: SideRun, pairs: dict[str, str]) -> tuple[OutputError, ...]:
    """How far each output of B is from that of A."""
    names = dict(zip(b.side.output_values, b.side.outputs, strict=True))
    return tuple(output_error(names.get(other, other), a.value(one), b.value(other)) for other, one in pairs.items())


def output_error(name: str, one: Array | None, other: Array | None) -> OutputError:
    """How far one value is from another."""
    if one is None or other is None or one.shape != other.shape or one.dtype == object:
        return OutputError(name=name, max_abs=None, max_rel=None)
    x, y = one.astype(np.float64), other.astype(np.float64)
    mismatch = (np.isnan(x) != np.isnan(y)) | (np.isinf(x) != np.isinf(y)) | (np.isinf(x) & np.isinf(y) & (x != y))
    with np.errstate(all="ignore"):
        far = np.abs(x - y)
    far = far[np.isfinite(far)]
    relative = relative_difference(one, other) if is_floating(one) and not mismatch.any() else None
    return OutputError(
        name=name,
        max_abs=float(far.max()) if far.size else 0.0,
        max_rel=relative,
        nan_mismatch=int(mismatch.sum()),
    )
