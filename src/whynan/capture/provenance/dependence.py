"""Element dependence that all frameworks share: broadcasting, the decisive operand, guards against small numbers."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard

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


def forward_index(out: Sequence[int], place: tuple[int, ...], shape: Sequence[int]) -> tuple[int, ...] | None:
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


# -- Which operand a birth turns on, by what the operator means, whatever framework computed it ------------------------


Roles: TypeAlias = "tuple[str, ...]"
"""What an operator computes, and the names of the operands that its births turn on, in their order.

``quotient`` of two, ``power`` of a base, ``product`` of two factors and what is added to it, ``batch`` of a variance
(under the first of several names), ``weights`` of scores, ``argument`` of a logarithm or root.
"""


def operand_by_role(
    roles: Roles | None,
    kind: BirthKind,
    operands: Sequence[Operand],
    known: Sequence[Operand],
    sides: Sequence[float] | None = None,
) -> Operand | None:
    """The operand that a birth turns on: the denominator, the radicand, the greatest factor; None where unknown.

    `known`: the tensors among the operands whose value is a number; `sides`: the sizes of two factors.
    """
    named = {o.name: o for o in operands if isinstance(o.value, (int, float))}
    what, *names = roles or ("",)
    given = [named[name] for name in names if name in named]
    if what == "quotient" and len(given) == 2:
        # the denominator where it is 0, or farther below 1 than the numerator is above
        top, below = given
        return below if kind == "pole" or below.value == 0 or -_log(below) > _log(top) else top
    if what == "power" and len(given) == 2:
        # the base where there is no such power of it; else what is farther from 1
        base, exponent = given
        return exponent if kind == "overflow" and _log(exponent) > abs(_log(base)) else base
    if what == "product" and len(given) > 1 and given[:2] == [named.get(name) for name in names[:2]]:
        return _factor(given[:2], sides or [_greatest(o) for o in given[:2]], given[2:])
    if what == "batch" and given:
        epsilon = next((number_of(named[name]) for name in ("eps", "epsilon") if name in named), 0.0)
        return _of_batch(kind, given[0], epsilon, known)
    if what == "weights":
        # where they are 0, as the mean is divided by their sum; else the scores
        return given[0] if given and given[0].value == 0 and kind != "overflow" else known[0]
    return given[0] if what == "argument" and given and kind != "overflow" else None


def _of_batch(kind: BirthKind, variance: Operand, epsilon: float, known: Sequence[Operand]) -> Operand:
    """The variance where it has no root; else what makes the quotient great."""
    spread = number_of(variance) + epsilon
    if spread <= 0:
        return variance
    shares = {o.name: _log(o) for o in known} | {variance.name: -math.log(spread) / 2}
    return variance if kind == "pole" else max(known, key=lambda o: shares[o.name])


def _factor(factors: Sequence[Operand], sides: Sequence[float], added: Sequence[Operand]) -> Operand:
    """The greater factor of a product, `sides` being their sizes, unless what is added is greater than the product."""
    above = [o for o in added if magnitude_of(o) > sides[0] * sides[1]]
    return max(above, key=magnitude_of) if above else factors[int(sides[1] > sides[0])]


def _greatest(operand: Operand) -> float:
    """How great the elements of a row are, or the one that there is."""
    ends = [abs(float(end)) for end in (operand.min, operand.max) if isinstance(end, (int, float))]
    return max((math.inf if math.isnan(end) else end for end in ends), default=magnitude_of(operand))


def number_of(operand: Operand) -> float:
    """The value as a number; NaN where there is none."""
    return float(operand.value) if isinstance(operand.value, (int, float)) else math.nan


def magnitude_of(operand: Operand) -> float:
    """How great a value is; a NaN is greater than all."""
    value = number_of(operand)
    return math.inf if math.isnan(value) else abs(value)


def _log(operand: Operand) -> float:
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


def is_worth_reporting(count: int, total: int) -> bool:
    """Whether so many healthy elements of so many are worth a word."""
    return count >= SEVERAL and count >= LEAST_SHARE * total


# -- Refused interventions ---------------------------------------------------------------------------------------------


class Refused(Exception):  # noqa: N818
    """An operation cannot be run again, or refuses operands that are not those of the run."""
