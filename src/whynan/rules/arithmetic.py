"""What an arithmetic event attempted, as a sentence and as an exact number: ``300 × 300 = 90000``."""

# pyright: strict

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING

from whynan.rules.facts import base, count_of, operand, row, value
from whynan.rules.numbers import decimal_text, exact, product, text

if TYPE_CHECKING:
    from whynan.records import Finding


@dataclass(frozen=True, slots=True)
class Attempt:
    """The computation in words, and its exact result where all its operands are known."""

    words: str
    result: Decimal | None


def attempted(finding: Finding) -> Attempt | None:
    """The exact result of an event with known operands; None where it is no plain arithmetic or a value is gone."""
    name = base(finding)
    a, b = value(finding, "self"), value(finding, "other")
    match name:
        case "mul":
            return _times(a, b)
        case "add" | "sub":
            return _sum(a, b, value(finding, "alpha"), minus=name == "sub")
        case "rsub":
            return _sum(b, a, value(finding, "alpha"), minus=True)
        case "div" | "true_divide":
            return _over(a, b)
        case "reciprocal":
            return _over(1.0, a)
        case "square":
            return _power(a, 2.0)
        case "pow":
            return _power(a, value(finding, "exponent"))
        case "addcmul":
            return _scaled(value(finding, "tensor1"), value(finding, "tensor2"), value(finding, "value"))
        case "mm" | "bmm" | "dot" | "mv":
            return _products(finding)
        case "sum" | "mean":
            return _alike(finding, name)
        case "_log_softmax" | "log_softmax":
            return _difference(finding)
        case "logspace":
            return _power(value(finding, "base") or 10.0, value(finding, "end"))
        case "_to_copy" | "copy":
            return _cast(finding)
        case _:
            return None


def _times(a: float | None, b: float | None) -> Attempt | None:
    if a is None or b is None:
        return None
    return _told(f"{text(a)} × {text(b)}", product(a, b), a, b)


def _scaled(a: float | None, b: float | None, scale: float | None) -> Attempt | None:
    if a is None or b is None:
        return None
    factors = (a, b) if scale is None else (a, b, scale)
    return _told(" × ".join(map(text, factors)), product(*factors), *factors)


def _over(a: float | None, b: float | None) -> Attempt | None:
    if a is None or b is None or b == 0:
        return None
    divide = exact(lambda c: c.divide(Decimal(a), Decimal(b))) if math.isfinite(a) and math.isfinite(b) else None
    return _told(f"{text(a)} / {text(b)}", divide, a, b)


def _sum(a: float | None, b: float | None, alpha: float | None, *, minus: bool) -> Attempt | None:
    if a is None or b is None:
        return None
    sign = "−" if minus else "+"
    right = text(b) if alpha is None else f"{text(alpha)} × {text(b)}"
    right = f"({right})" if right.startswith("-") else right
    if not (math.isfinite(a) and math.isfinite(b)):
        return None
    scaled = product(b, -1.0 if minus else 1.0, 1.0 if alpha is None else alpha)
    total = None if scaled is None else exact(lambda c: c.add(Decimal(a), scaled))
    return _told(f"{text(a)} {sign} {right}", total, a, b)


def _power(a: float | None, p: float | None) -> Attempt | None:
    if a is None or p is None or (a == 0 and p <= 0) or (a < 0 and not p.is_integer()):
        return None

    def raise_to(context: Context) -> Decimal:
        return context.power(Decimal(a), Decimal(p))

    try:
        return _told(f"{text(a)} ** {text(p)}", exact(raise_to), a, p)
    except InvalidOperation:
        return None


def _products(finding: Finding) -> Attempt | None:
    """A sum of products whose factors are all alike."""
    names = ("self", {"dot": "tensor", "mv": "vec"}.get(base(finding), "mat2"))
    spans = [row(finding, n) for n in names]
    shared = operand(finding, names[1])
    if None in spans or shared is None or shared.shape is None:
        return None
    (a, b), (c, d) = (s for s in spans if s is not None)
    if a != b or c != d:
        return None
    count = shared.shape[-1] if base(finding) in ("dot", "mv") else shared.shape[-2]
    return _told(f"{count} × {text(a)} × {text(c)}", product(float(count), a, c), a, c)


def _alike(finding: Finding, name: str) -> Attempt | None:
    """A sum of equal values, or the one behind their mean."""
    span, count = row(finding, "self"), count_of(finding, "self")
    if span is None or count is None or span[0] != span[1]:
        return None
    words = f"{count} × {text(span[0])}"
    return _told(
        f"the sum behind the mean, {words}" if name == "mean" else words, product(float(count), span[0]), span[0]
    )


def _difference(finding: Finding) -> Attempt | None:
    """The least logit of a row less the greatest, which is what its logarithm of softmax is at most."""
    span = row(finding, "self", "input")
    return None if span is None else _sum(*span, None, minus=True)


def _cast(finding: Finding) -> Attempt | None:
    found = value(finding, "self", "src")
    if found is None or not math.isfinite(found):
        return None
    return Attempt(f"{text(found)}, cast to {finding.element.dtype},", Decimal(found))


def _told(words: str, result: Decimal | None, *operands: float) -> Attempt | None:
    if not all(math.isfinite(o) for o in operands):
        return None
    return Attempt(f"{words} = {decimal_text(result)}", result)
