"""The decisive operand of a birth, by what the operator means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.capture.onnx.provenance.operands import locate
from whynan.capture.provenance.dependence import magnitude_of, number_of, of_batch, of_power, of_product, of_quotient
from whynan.floats import FORMATS
from whynan.ops.onnx import CONVOLUTIONS, GREATEST, LEADING, NORMALISED, NORMS, PRODUCTS, QUANTISED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whynan.capture.onnx.execution import Node, Value
    from whynan.capture.onnx.provenance.operands import Index
    from whynan.records import BirthKind, Operand


def decisive(
    node: Node, inputs: Sequence[Value], index: Index, kind: BirthKind, operands: tuple[Operand, ...]
) -> Operand | None:
    """The operand that a birth turns on: the denominator, the radicand, the greatest factor.

    Of an operator that is not known it is a zero, else the greatest in magnitude.
    """
    known = [o for o in operands if o.dtype is not None and isinstance(o.value, (int, float))]
    if node.op not in QUANTISED:
        # an axis or a class is none, and has a part only where there is nothing else
        known = [o for o in known if o.dtype in FORMATS] or known
    if not known:
        return None
    if node.op in PRODUCTS or node.op in CONVOLUTIONS:
        return _of_products(node, inputs, index, known)
    if node.op in NORMS:
        return _of_norm(known)
    chosen = _CHOSEN.get(node.op)
    if chosen is not None:
        return chosen(kind, {o.name: o for o in operands if isinstance(o.value, (int, float))}, known)
    if node.op in LEADING:
        return known[0]
    if node.op not in GREATEST:
        zeros = [o for o in known if o.value == 0]
        if zeros:
            return zeros[-1]
    return max(known, key=magnitude_of)


def _quotient(kind: BirthKind, named: dict[str, Operand], known: list[Operand]) -> Operand:
    top, below = named.get("A"), named.get("B")
    return known[-1] if top is None or below is None else of_quotient(kind, top, below)


def _power(kind: BirthKind, named: dict[str, Operand], known: list[Operand]) -> Operand:
    base, exponent = named.get("X"), named.get("Y")
    return known[0] if base is None or exponent is None or exponent.dtype is None else of_power(kind, base, exponent)


def _batch(kind: BirthKind, named: dict[str, Operand], known: list[Operand]) -> Operand:
    variance = next((named[name] for name in ("input_var", "var") if name in named), None)
    if variance is None:
        return known[0]
    return of_batch(kind, variance, number_of(named["epsilon"]) if "epsilon" in named else 0.0, known)


def _weighted(kind: BirthKind, named: dict[str, Operand], known: list[Operand]) -> Operand:
    """The weights where they are 0, as the mean is divided by their sum; else the scores."""
    weight = next((named[name] for name in ("weight", "weights") if name in named), None)
    return weight if weight is not None and weight.value == 0 and kind != "overflow" else known[0]


_CHOSEN: Final[dict[str, Callable[[BirthKind, dict[str, Operand], list[Operand]], Operand]]] = {
    "Div": _quotient,
    "Mod": _quotient,
    "Pow": _power,
    "BatchNormalization": _batch,
    "NegativeLogLikelihoodLoss": _weighted,
    "SoftmaxCrossEntropyLoss": _weighted,
}


def _of_norm(known: list[Operand]) -> Operand:
    """What is normalised, unless a parameter is so great that what has been normalised overflows with it."""
    rows = [o for o in known if o.name in NORMALISED] or known[:1]
    greatest = math.sqrt(max(1, math.prod(rows[0].shape or ())))
    equal = all(o.min is not None and o.min == o.max for o in rows)
    for o in () if equal else known:
        if o not in rows and o.dtype in FORMATS and magnitude_of(o) * greatest > FORMATS[o.dtype].max / 2:
            return o
    return max(rows, key=magnitude_of)


def _of_products(node: Node, inputs: Sequence[Value], index: Index, known: list[Operand]) -> Operand:
    """The greater factor of the greatest product, unless what is added is greater than that."""
    factors, added = known[:2], known[2:]
    if len(factors) < 2 or any(value is None for value in inputs[:2]):
        return max(known, key=magnitude_of)
    with np.errstate(all="ignore"):
        rows = [locate(node, inputs, i, index)[1] for i in (0, 1)]
        a, b = (None if row is None else np.abs(row.astype(np.float64)).reshape(-1) for row in rows)
        if a is not None and b is not None and a.size and a.shape == b.shape:
            greatest = int(np.argmax(np.nan_to_num(a * b, nan=np.inf, posinf=np.inf)))
            sides = float(a[greatest]), float(b[greatest])
        else:
            # where part of a window lies outside
            sides = magnitude_of(factors[0]), magnitude_of(factors[1])
    return of_product(factors, sides, added)
