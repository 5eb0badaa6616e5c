"""The effect of a divergence: what the outputs of B would be had its operation given A's value, and how it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.compare.sides.double import is_floating
from whynan.compare.sides.operations import UnavailableError
from whynan.compare.spelling import base

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whynan.compare.alignment import Alignment
    from whynan.compare.sides.operations import Array
    from whynan.compare.stretches import Culprit, SideRun

_ULPS: Final = 8.0


def mended(run: SideRun, instead: Mapping[str, Array]) -> dict[str, Array]:
    """The values of a run that hang on some of them, had these been others; raises ``UnavailableError``."""
    changed = dict(instead)
    with np.errstate(all="ignore"):
        for operation in run.side.operations:
            if not instead.keys().isdisjoint(operation.outputs) or changed.keys().isdisjoint(operation.inputs):
                continue
            operands: dict[str, Array] = {}
            for name in dict.fromkeys(operation.inputs):
                found = changed.get(name)
                if found is None and name and run.side.constant(name) is None:
                    found = run.values.get(name)
                if found is not None:
                    operands[name] = found
            for name, made in zip(operation.outputs, run.side.evaluate(operation, operands), strict=False):
                before = run.values.get(name)
                if before is None or before.shape != made.shape or not np.array_equal(before, made, equal_nan=True):
                    changed[name] = made
    return changed


def matters(run: SideRun, culprit: Culprit, a: Array, roundoff: float) -> bool:
    """Whether an output of B would be another by more than rounding, had the culprit given A's value."""
    theirs = run.value(culprit.value)
    if theirs is None or theirs.size != a.size or culprit.value in run.side.output_values:
        return True
    better = a.reshape(theirs.shape)
    wider = dict.fromkeys(_widened(run, culprit.value, a), better)
    try:
        changed = mended(run, {culprit.value: better.astype(theirs.dtype), **wider})
    except UnavailableError:
        return True
    outputs = ((run.value(name), changed.get(name)) for name in run.side.output_values)
    return any(
        before is not None and after is not None and apart(before, after, _ULPS * roundoff) for before, after in outputs
    )


def _widened(run: SideRun, value: str, a: Array) -> list[str]:
    """The values in A's format that a narrower one is cast to: in its own format it can hold no more of A's."""
    readers = [name for reader in run.readers.get(value, ()) for name in reader.outputs if base(reader.op) == "Cast"]
    made = [(name, run.value(name)) for name in readers]
    return [name for name, v in made if v is not None and v.dtype == a.dtype != run.values[value].dtype]


def apart(one: Array, other: Array, relative: float) -> bool:
    """Whether two values differ by more than a share of the largest magnitude, or are bad in other places."""
    if one.shape != other.shape:
        return True
    if not is_floating(one) or not is_floating(other):
        return bool((one != other).any())
    x, y = one.astype(np.float64), other.astype(np.float64)
    finite = np.abs(x[np.isfinite(x)])
    scale = float(finite.max()) if finite.size else 0.0
    with np.errstate(all="ignore"):
        near = (np.abs(x - y) <= relative * scale) | (x == y) | (np.isnan(x) & np.isnan(y))
    return not bool(near.all())


def growth(
    a: SideRun, b: SideRun, alignment: Alignment, culprit: Culprit, most: int
) -> Iterator[tuple[str, str, float]]:
    """The relative difference at the culprit and at some values after it, the outputs last: value, operator, size."""
    after = [
        (name, operation.op)
        for operation in b.side.operations
        if operation.index > culprit.stretch.operations[-1].index
        for name in operation.outputs
        if name in alignment.pairs
    ]
    outputs = [pair for pair in after if pair[0] in b.side.output_values]
    inner = [pair for pair in after if pair[0] not in b.side.output_values]
    room = max(most - 1 - len(outputs[:2]), 0)
    step = max(-(-len(inner) // room), 1) if room else 1
    shown = [(culprit.value, culprit.operation.op), *(inner[::step][:room] if room else []), *outputs[:2]]
    for name, op in dict.fromkeys(shown):
        ours, theirs = a.value(alignment.pairs[name][0]), b.value(name)
        if ours is not None and theirs is not None and ours.size == theirs.size and is_floating(ours):
            yield name, op, relative_difference(ours, theirs.reshape(ours.shape))


def relative_difference(one: Array, other: Array) -> float:
    """The largest difference over the largest magnitude of the first; NaN where they are bad in other places."""
    x, y = one.astype(np.float64), other.astype(np.float64)
    bad = np.isfinite(x) != np.isfinite(y)
    if bad.any():
        return float("nan")
    with np.errstate(all="ignore"):
        far, size = np.abs(x - y), np.abs(x)
    far, size = far[np.isfinite(far)], size[np.isfinite(size)]
    return float(far.max() / size.max()) if far.size and size.max() > 0 else float(far.max()) if far.size else 0.0


def bad_places(value: Array) -> Array:
    """Which elements are NaN or infinite."""
    return ~np.isfinite(value.astype(np.float64)) if is_floating(value) else np.zeros(value.shape, bool)
