"""Which of two operands a quotient, a power or a normalisation turns on, whatever framework computed it."""

# pyright: strict

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.records import BirthKind, Operand


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
