"""What a number format is entitled to lose in a stretch: its exact values, and the noise that rounding makes there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.compare.sides.double import is_floating
from whynan.compare.spelling import base
from whynan.compare.stretches import walk
from whynan.errors import UsageError
from whynan.floats import format_of
from whynan.ops.table import ONNX, TORCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.compare.sides.operations import Array, Operation, Side
    from whynan.compare.stretches import Stretch

DRAWS: Final = 4
"""Noisy runs of what mixes elements; the largest deviation of them counts."""
_SIGNS: Final = 8
"""Noisy runs of what works element by element: up to eight sources of noise do not cancel in all of them."""
FACTOR: Final = 8.0
"""So much more than the noisy runs deviate is still rounding."""
_SMALL: Final = 0.1
"""The share of elements below what is small."""
_HUGE: Final = 100.0
"""So many times as large as what is small is of no usual size."""
SUMS: Final = TORCH.having("sum-of-products") | ONNX.having("sum-of-products")
_RANGE: Final = TORCH.having("bounded-accuracy") | ONNX.having("bounded-accuracy")
_OPERAND: Final = TORCH.having("operand-accuracy") | ONNX.having("operand-accuracy")
_JUMPS: Final = TORCH.having("jumps") | ONNX.having("jumps")
_STEPWISE: Final = TORCH.having("stepwise") | ONNX.having("stepwise")


def usual_size(value: Array) -> float:
    """The root mean square of what is of usual size; a mask's huge numbers are none of it, nor is 0."""
    size = np.abs(value[np.isfinite(value) & (value != 0)]).astype(np.float64)
    if not size.size:
        return 0.0
    usual = size[size <= _HUGE * np.quantile(size, _SMALL)]
    return float(np.sqrt(np.mean(np.square(usual))))


def unit_roundoff(dtype: np.dtype[Any]) -> float:
    """The unit roundoff of a dtype; 0 for what is no floating-point number."""
    try:
        return format_of(dtype.name).eps / 2
    except UsageError:
        return 0.0


@cache
def least_normal(roundoff: float) -> float:
    """The smallest normal number of the format with this unit roundoff: below, engines may flush to zero."""
    names = ("float64", "float32", "float16", "bfloat16")
    return next((format_of(n).tiny for n in names if math.isclose(format_of(n).eps / 2, roundoff)), 0.0)


@dataclass(frozen=True, slots=True)
class Exact:
    """The value of a stretch in float64, and what rounding may make of it.

    ``meaning`` tolerates the rounding of operands, constants and results; ``kernel`` the order of long sums as well.
    ``flips``: the elements that are another whole number or truth value in a noisy run.
    """

    value: Array
    meaning: Array
    kernel: Array
    flips: Array | None


class Rounding:
    """The noise of a stretch in some arithmetic."""

    def __init__(self, side: Side, stretch: Stretch, given: Mapping[str, Array], roundoff: float) -> None:
        self._side = side
        self._stretch = stretch
        self._given = {name: value for name, value in given.items() if name in stretch.cut}
        self._roundoff = roundoff
        self._sums: dict[int, Array] = {}

    @cached_property
    def _values(self) -> dict[str, Array]:
        return walk(self._stretch.operations, self._given, self._summed)

    @property
    def value(self) -> Array:
        """The exact value; raises ``UnavailableError`` where it cannot be had."""
        return self._values[self._stretch.value]

    def exact(self) -> Exact:
        """The exact value and its tolerance; raises ``UnavailableError`` where it cannot be had."""
        values, value = self._values, self.value
        last = self._stretch.operations[-1]
        if not is_floating(value):
            drawn = [self._noisy(n, sums=True) for n in range(2 * DRAWS)]
            flips = np.any([one != value for one in drawn if one.shape == value.shape], axis=0)
            zero = np.zeros(value.shape)
            return Exact(value, zero, zero, np.broadcast_to(flips, value.shape))
        own = self._own(last, values, value)
        if len(self._stretch.operations) == 1 and base(last.op) in _JUMPS:
            # its operands are given as they are: there is nothing to round before the step
            return Exact(value, own, own, None)
        meaning = self._spread(value, sums=False) + own
        kernel = self._spread(value, sums=True) + own if self._sums else meaning
        return Exact(value, meaning, kernel, None)

    def _own(self, last: Operation, values: Mapping[str, Array], value: Array) -> Array:
        """What the last operation alone may lose: the rounding of its result, or the accuracy of its kernel."""
        least = least_normal(self._roundoff)
        own = 4 * self._roundoff * np.abs(value) + least
        if len(self._stretch.operations) > 1:
            return own
        if base(last.op) in _RANGE:
            return own + 4 * self._roundoff
        if base(last.op) in _OPERAND:
            x = values.get(last.inputs[0])
            if x is not None and x.shape == value.shape:
                return own + 4 * self._roundoff * np.abs(x)
        return own

    def _spread(self, value: Array, *, sums: bool) -> Array:
        """By how much noisy runs deviate, a fluke of all of them that an element stands still aside."""
        spread = np.zeros(value.shape)
        for number in range(DRAWS if mixes(self._stretch.operations) else _SIGNS):
            drawn = self._noisy(number, sums=sums)
            if drawn.shape == value.shape:
                with np.errstate(all="ignore"):
                    far = np.abs(drawn - value)
                spread = np.maximum(spread, np.where(np.isfinite(far), far, np.where(drawn == value, 0.0, np.inf)))
        return FACTOR * np.maximum(spread, usual_size(spread) if mixes(self._stretch.operations) else 0.0)

    def _summed(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """An operation in float64; of a sum of products, the sum of the magnitudes is kept beside it."""
        found = self._side.exact(operation, operands)
        if base(operation.op) in SUMS and is_floating(found[0]):
            whole = self._operands(operation, operands)
            sizes = {name: np.abs(v.astype(np.float64)) if is_floating(v) else v for name, v in whole.items()}
            total = self._side.exact(operation, sizes)[0]
            terms = _terms(operation, whole, found[0])
            self._sums[operation.index] = np.abs(total) * max(0.5, math.sqrt(terms) / FACTOR)
        return found

    def _operands(self, operation: Operation, operands: Mapping[str, Array]) -> dict[str, Array]:
        """The operands of an operation, its constants among them."""
        constants = {n: self._side.constant(n) for n in operation.inputs if n and n not in operands}
        return {**operands, **{name: value for name, value in constants.items() if value is not None}}

    def _noisy(self, seed: int, *, sums: bool) -> Array:
        draw = _Signs(seed, mixes=mixes(self._stretch.operations))
        unit = self._roundoff
        sizes = set[str]()
        """Values that are computed of whole numbers and single constants alone, as the sizes of a shape are."""

        def perturbed(value: Array) -> Array:
            if not is_floating(value) or value.size == 1:
                return value
            return value.astype(np.float64) * (1 + unit * draw.signs(value.shape))

        def compute(operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
            whole = self._operands(operation, operands)
            fresh = {n: v if n in operands or operation.holds_bodies else perturbed(v) for n, v in whole.items()}
            found = self._side.exact(operation, fresh)
            still = (not is_floating(v) or n in sizes or (n not in operands and v.size == 1) for n, v in whole.items())
            if quiet := bool(whole) and all(still):
                sizes.update(operation.outputs)
            made: list[Array] = []
            for value in found:
                if quiet or not is_floating(value):
                    made.append(value)
                    continue
                size = unit * np.abs(value)
                if sums and operation.index in self._sums and not made:
                    size = size + unit * self._sums[operation.index]
                made.append(value + size * draw.signs(value.shape))
            return made

        return walk(self._stretch.operations, {n: perturbed(v) for n, v in self._given.items()}, compute)[
            self._stretch.value
        ]


class _Signs:
    """The signs of the noise of one run: drawn, or a row of a Hadamard matrix, one sign for each source."""

    def __init__(self, seed: int, *, mixes: bool) -> None:
        self._draws = np.random.default_rng(seed)
        self._row, self._mixes, self._source = seed, mixes, 0

    def signs(self, shape: tuple[int, ...]) -> Array | float:
        """Those of the next source."""
        if self._mixes:
            return self._draws.choice((-1.0, 1.0), shape)
        self._source += 1
        # Sylvester's construction: the parity of the bits that both numbers have
        return -1.0 if (self._row & (self._source % _SIGNS)).bit_count() % 2 else 1.0


def mixes(operations: tuple[Operation, ...]) -> bool:
    """Whether an element hangs on many of an operand, so that noise may cancel in it by chance."""
    return not all(operation.elementwise for operation in operations)


def _terms(operation: Operation, operands: Mapping[str, Array], result: Array) -> float:
    """How many products are summed for an element."""
    arrays = [operands[name] for name in operation.inputs if name in operands and is_floating(operands[name])]
    kind = base(operation.op)
    if not arrays:
        return 1.0
    if kind in _STEPWISE:
        return float(max(result.shape, default=1))
    if "onv" in kind and len(arrays) > 1:
        return float(math.prod(arrays[1].shape[1:]))
    if len(arrays) > 1 and arrays[0].ndim:
        return float(max(array.shape[-1] if array.ndim else 1 for array in arrays[:3]))
    return max(arrays[0].size / max(result.size, 1), 1.0)


def narrowest(side: Side, sample: Mapping[str, Array]) -> float:
    """The unit roundoff of most values of a run, or the one that was asked for."""
    if side.roundoff is not None:
        return side.roundoff
    counts: dict[float, int] = {}
    for value in sample.values():
        if is_floating(value):
            unit = unit_roundoff(value.dtype)
            counts[unit] = counts.get(unit, 0) + 1
    return max(counts, key=lambda unit: counts[unit], default=2.0**-24)
