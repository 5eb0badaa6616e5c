"""Localisation: the operation at fault within a stretch of several, between whose ends no value has a partner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.compare.fingerprints import distance
from whynan.compare.sides.double import is_floating
from whynan.compare.sides.operations import UnavailableError
from whynan.compare.spelling import base, spelled
from whynan.compare.stretches import operands_of, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.compare.alignment import Alignment
    from whynan.compare.sides.operations import Array, Operation
    from whynan.compare.stretches import Culprit, SideRun

SAME: Final = 1e-4
"""Results that are nearer, relative to their size, are the same."""
_CANDIDATES: Final = 4
_MOSTLY: Final = 0.5
_WEIGHTS: Final = 8
"""Elements; fewer may be numbers of a formula."""
_EVALUATIONS: Final = 4000
"""Operations that are run to find the place."""


def inner_pair(a: SideRun, b: SideRun, culprit: Culprit) -> tuple[str, str] | None:
    """A value of B within the stretch, and that of A which mends the rest of it in its place: both are one number."""
    target = a.value(culprit.other_value)
    if target is None or len(culprit.stretch.operations) < 2 or len(culprit.other.operations) < 2:
        return None
    ours = {name: v for o in culprit.other.operations for name in o.outputs if (v := a.value(name)) is not None}
    ours.pop(culprit.other_value, None)
    left = _EVALUATIONS
    try:
        values = walk(culprit.stretch.operations, culprit.given, b.side.evaluate)
    except UnavailableError:
        return None
    for number, operation in enumerate(culprit.stretch.operations[:-1]):
        for there in operation.outputs:
            theirs = values[there]
            for here in _candidates(a, ours, theirs, operation):
                rest = culprit.stretch.operations[number + 1 :]
                left -= len(rest)
                if left < 0:
                    return None
                known = {**values, there: ours[here].reshape(theirs.shape).astype(theirs.dtype)}
                made = rest_of(b, rest, known, there, culprit.value)
                if made is not None and distance(made, target) < SAME:
                    return there, here
    return None


def _candidates(a: SideRun, ours: dict[str, Array], theirs: Array, operation: Operation) -> list[str]:
    """The values of A of one shape with a value of B: those that the same operator makes first, then the nearest."""
    if theirs.size < 2:
        return []
    found = [name for name, v in ours.items() if v.shape == theirs.shape and v.dtype.kind == theirs.dtype.kind]
    word = spelled(operation.op)
    return sorted(found, key=lambda name: (spelled(a.producers[name].op) != word, distance(theirs, ours[name])))[
        :_CANDIDATES
    ]


def rest_of(
    b: SideRun, operations: tuple[Operation, ...], values: dict[str, Array], changed: str, wanted: str
) -> Array | None:
    """What a stretch comes to where one value of it is another; None where it does not hang on that."""
    touched, made = {changed}, dict(values)
    try:
        with np.errstate(all="ignore"):
            for operation in operations:
                if any(name in touched for name in operation.inputs):
                    found = b.side.evaluate(operation, {n: made[n] for n in operation.inputs if n in made})
                    made.update(zip(operation.outputs, found, strict=False))
                    touched.update(operation.outputs)
    except UnavailableError:
        return None
    return made[wanted] if wanted in touched else None


def faulty_operation(a: SideRun, b: SideRun, alignment: Alignment, culprit: Culprit) -> Operation | None:
    """The first operation of a stretch that has one of the same kind in A, reads the same, and gives something else."""
    pairs = {there: alignment.pairs[there][0] for there in culprit.stretch.cut if there in alignment.pairs}
    used: set[int] = set()
    values = dict(culprit.given)
    for operation in culprit.stretch.operations:
        try:
            found = b.side.evaluate(operation, {n: values[n] for n in operation.inputs if n in values})
        except UnavailableError:
            return None
        values.update(zip(operation.outputs, found, strict=False))
        partners = [one for one in _partners(a, b, culprit, operation, pairs) if one.index not in used]
        if len(partners) != 1:
            continue
        partner = partners[0]
        for made, here in zip(found, partner.outputs, strict=False):
            ours = a.value(here)
            if ours is None:
                continue
            # the same numbers in another shape are no fault
            if distance(made, ours) > SAME:
                return operation
        used.add(partner.index)
        pairs.update(zip(operation.outputs, partner.outputs, strict=False))
    return None


def strange_weights(a: SideRun, b: SideRun, culprit: Culprit) -> Operation | None:
    """The operation with a weight of which most numbers are A's, in whatever order, and some are not."""
    held = [_constants(a, operation) for operation in culprit.other.operations]
    known = np.concatenate([value.reshape(-1) for values in held for value in values] or [np.zeros(0)])
    for operation in culprit.stretch.operations:
        for value in _constants(b, operation):
            share = float(np.isin(value, known).mean())
            if _MOSTLY <= share < 1:
                return operation
    return None


def shared_weights(a: SideRun, b: SideRun) -> float:
    """The share of B's weights that are A's, in whatever order; 0 and 1, which any model holds, are not counted."""
    ours, theirs = (
        np.concatenate([np.zeros(0), *(v.reshape(-1) for o in run.side.operations for v in _constants(run, o))])
        for run in (a, b)
    )
    told = theirs[(theirs != 0) & (theirs != 1)]
    return float(np.isin(told, ours).mean()) if told.size else 0.0


def _constants(run: SideRun, operation: Operation) -> list[Array]:
    found = [run.side.constant(name) for name in dict.fromkeys(operation.inputs) if name]
    return [value for value in found if value is not None and is_floating(value) and value.size >= _WEIGHTS]


def _partners(
    a: SideRun, b: SideRun, culprit: Culprit, operation: Operation, pairs: dict[str, str]
) -> Iterator[Operation]:
    read = operands_of(b, operation)
    for one in culprit.other.operations:
        ours = operands_of(a, one)
        if spelled(one.op) != spelled(operation.op) or len(ours) != len(read):
            continue
        if all(
            pairs.get(there) == here if b.side.constant(there) is None else a.side.constant(here) is not None
            for there, here in zip(read, ours, strict=True)
        ):
            yield one


def superfluous_operation(a: SideRun, b: SideRun, culprit: Culprit) -> Operation | None:
    """The first operation without which a stretch comes to what A has: as if it gave one of its operands unchanged."""
    target = a.value(culprit.other_value)
    operations = culprit.stretch.operations
    if target is None or distance(culprit.made, target) < SAME or len(operations) ** 2 > _EVALUATIONS:
        return None
    try:
        values = walk(operations, culprit.given, b.side.evaluate)
    except UnavailableError:
        return None
    for number, operation in enumerate(operations):
        there = operation.outputs[0]
        operands = (values[name] for name in operation.inputs if name in values)
        for operand in (v for v in operands if v.shape == values[there].shape and v.dtype == values[there].dtype):
            rest = operations[number + 1 :]
            made = rest_of(b, rest, {**values, there: operand}, there, culprit.value)
            if made is not None and distance(made, target) < SAME:
                return operation
    return None


def foreign_operation(culprit: Culprit, passing: frozenset[str]) -> Operation | None:
    """The one operation of a stretch of whose kind A has none; None where there are several, or A has one for all.

    `passing`: the operators that only move numbers, or give them another shape or format.
    """
    ours = {spelled(one.op) for one in culprit.other.operations}
    operations = (one for one in culprit.stretch.operations if base(one.op) not in passing)
    found = [one for one in operations if spelled(one.op) not in ours]
    return found[0] if len(found) == 1 and len(culprit.other.operations) > 1 else None
