"""Element dependence that all frameworks share: broadcasting, the decisive operand, guards against small numbers."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.records import BirthKind, Operand


# -- Which element of an operand meets an element of the output, whatever holds the numbers ----------------------------


_MOST_DIMENSIONS: Final = 12


def broadcast_index(shape: Sequence[int], index: tuple[int, ...]) -> tuple[int, ...] | None:
    """The operand element that meets an output element under broadcasting; None where it does not."""
    if len(shape) > len(index):
        return None
    tail = index[len(index) - len(shape) :]
    result: list[int] = []
    for size, i in zip(shape, tail, strict=True):
        if size != 1 and i >= size:
            return None
        result.append(0 if size == 1 else i)
    return tuple(result)


def index_ahead(out: Sequence[int], place: tuple[int, ...], shape: Sequence[int]) -> tuple[int, ...] | None:
    """The element of a result of shape ``out`` that an element of its gradient, which has another shape, is about.

    What differentiates for a whole batch of directions at once (``jacrev``, ``is_grads_batched``) gives a gradient
    more dimensions than its result has, at any place. None where the sizes do not tell which they are.
    """
    if len(shape) <= len(out) or len(place) != len(shape):
        return place
    if len(shape) > _MOST_DIMENSIONS:
        return None
    kept = (
        d for d in combinations(range(len(shape)), len(out)) if all(shape[n] == o for n, o in zip(d, out, strict=True))
    )
    found = {tuple(place[n] for n in dimensions) for dimensions in kept}
    return found.pop() if len(found) == 1 else None


# -- Which of two operands a quotient, a power or a normalisation turns on, whatever framework computed it -------------


def of_quotient(kind: BirthKind, top: Operand, below: Operand) -> Operand:
    """The denominator where it is 0, or farther below 1 than the numerator is above."""
    return below if kind == "pole" or below.value == 0 or -log_of(below) > log_of(top) else top


def of_power(kind: BirthKind, base: Operand, exponent: Operand) -> Operand:
    """The base where there is no such power of it; else what is farther from 1."""
    return exponent if kind == "overflow" and log_of(exponent) > abs(log_of(base)) else base


def of_batch(kind: BirthKind, variance: Operand, epsilon: float, known: Sequence[Operand]) -> Operand:
    """The variance where it has no root; else what makes the quotient great."""
    spread = number_of(variance) + epsilon
    if spread <= 0:
        return variance
    shares = {o.name: log_of(o) for o in known} | {variance.name: -math.log(spread) / 2}
    return variance if kind == "pole" else max(known, key=lambda o: shares[o.name])


def of_product(factors: Sequence[Operand], sides: Sequence[float], added: Sequence[Operand]) -> Operand:
    """The greater factor of a product, `sides` being their sizes, unless what is added is greater than the product."""
    above = [o for o in added if magnitude_of(o) > sides[0] * sides[1]]
    return max(above, key=magnitude_of) if above else factors[int(sides[1] > sides[0])]


def number_of(operand: Operand) -> float:
    """The value as a number; NaN where there is none."""
    return float(operand.value) if isinstance(operand.value, (int, float)) else math.nan


def magnitude_of(operand: Operand) -> float:
    """How great a value is; a NaN is greater than all."""
    value = number_of(operand)
    return math.inf if math.isnan(value) else abs(value)


def log_of(operand: Operand) -> float:
    """The logarithm of the magnitude."""
    value = magnitude_of(operand)
    return math.log(value) if 0 < value < math.inf else math.copysign(math.inf, value - 1)


# -- When a guard against a small number has written over values that were none; for each framework alike --------------


LARGEST: Final = 1e-2
"""No guard against a small number has a greater one."""
FAR: Final = 100.0
"""So many times the constant is far from it."""
LEAST_SHARE: Final = 0.01
SEVERAL: Final = 3
"""A guard that writes over fewer healthy elements is not told."""


def is_guard(constant: object) -> TypeGuard[float]:
    """Whether a constant is so small that it is written against a division by 0, and no other value."""
    return type(constant) is float and 0 < constant <= LARGEST


def is_told(count: int, total: int) -> bool:
    """Whether so many healthy elements of so many are worth a word."""
    return count >= SEVERAL and count >= LEAST_SHARE * total


# -- Refused interventions ---------------------------------------------------------------------------------------------


class Refused(Exception):  # noqa: N818
    """An operation cannot be run again, or refuses operands that are not those of the run."""
