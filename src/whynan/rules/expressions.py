"""The expression around a birth: which part of it the birth is, and what was computed from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from whynan.expr import Expressions, NormalForm
from whynan.expr.normal import ONE, add, factors
from whynan.expr.structure import Condition, fits, matches
from whynan.expr.structure import operand as operand_of
from whynan.ops.table import TORCH
from whynan.records import Finding, Neighbourhood, Note
from whynan.rules.base import STRUCTURE, Explanation
from whynan.rules.facts import (
    INF,
    base,
    forward_base,
    forward_is_zero,
    forward_value,
    has_infinite_operand,
    is_nan,
    is_zero,
    limit,
    number_text,
    operand,
    result,
    value,
)
from whynan.rules.wording import forward_operand_source, operand_source, operands_text, operator_text, readable

_LOGS: Final = ("log", "log2", "log10")
_QUOTIENTS: Final = ("div", "true_divide")
_SCATTERS: Final = "(index_add | scatter_add | scatter_reduce | scatter)"
_MEAN_OF_SEGMENTS: Final = f"{_SCATTERS}(a, i, b, ...) * ... / ({_SCATTERS}(c, i, d, ...) | bincount(i, ...))"
_MEAN_OF_CHOSEN: Final = (
    "sum(m ** A * x ** B * ...) * ... / sum(m)"
    " | sum(where(m, ...)) * ... / sum(m | ~m)"
    " | (matmul(m, ...) | matmul(x, m, ...)) * ... / sum(m)"
)
_SUMS: Final = ("sum", "cumsum", "mean")
_DECAYING: Final = ("softmax", "sigmoid", "exp")


_known: list[tuple[Neighbourhood, Expressions]] = []
"""Of the last finding: every rule asks for them."""


def expressions(finding: Finding) -> Expressions | None:
    """The terms around a birth; None where nothing is known of what is around it."""
    around = finding.around
    if around is None:
        return None
    if not _known or _known[0][0] is not around:
        _known[:] = [(around, Expressions(around))]
    return _known[0][1]


def logarithm_of_zero(finding: Finding) -> tuple[Expressions, NormalForm] | None:
    """Of a birth at the logarithm of 0, or in its derivative there: what the logarithm is taken of."""
    found = expressions(finding)
    backward = finding.phase == "backward"
    name = forward_base(finding) if backward else base(finding)
    if found is None or name not in (*_LOGS, "log1p", "xlogy"):
        return None
    shifted, by = name == "log1p", "other" if name == "xlogy" else "self"
    at = forward_value(finding, by) if backward else value(finding, by)
    if at != -1 if shifted else not (forward_is_zero(finding, by) if backward else is_zero(finding, by)):
        return None
    of = found.argument_term(found.middle, by)
    if of is None:
        return None
    return found, without_coefficient(add(ONE, of) if shifted else of)


def is_exact_zero(finding: Finding) -> bool:
    """Whether the 0 is that of an exponential, a softmax or a sigmoid of -Inf, which is exact."""
    return any(link.role == "cause" and _is_decayed_infinity(link.typed_summary) for link in finding.chain)


def _is_decayed_infinity(said: Note) -> bool:
    if said.kind not in ("logit_of_infinity", "computed") or said.values["result"] != 0:
        return False
    is_infinite = said.kind == "logit_of_infinity" or said.values["operands"] == (-INF,)
    return is_infinite and str(said.values["operator"]).lower().endswith(_DECAYING)


def divisors(finding: Finding) -> frozenset[NormalForm]:
    """What a birth at a division divides by, without exponents."""
    found = expressions(finding)
    name = forward_base(finding) if finding.phase == "backward" else base(finding)
    by = None if found is None else found.argument_term(found.middle, "other" if name in _QUOTIENTS else "self")
    return frozenset() if by is None else frozenset(part for part, _ in factors(without_coefficient(by)))


def exponential_too_large(finding: Finding) -> Expressions | None:
    """Of a birth at an exponential out of the range of its dtype, or in a derivative with it: what is around it."""
    if _derived_from_infinity(finding):
        return expressions(finding)
    if finding.phase == "backward" and forward_base(finding) != "cosh":
        return expressions(finding) if _slope_of_infinity(finding) else None
    if finding.birth != "overflow" or base(finding) not in TORCH.having("exponential"):
        return None
    return expressions(finding)


def sum_of_exponentials_too_large(finding: Finding) -> Expressions | None:
    """Of a birth at a sum of exponentials, or of products with them, that are finite themselves: what is around it."""
    found = expressions(finding)
    if found is None or finding.phase == "backward" or finding.birth != "overflow" or base(finding) not in _SUMS:
        return None
    of = found.argument_term(found.middle, "self")
    return found if of is not None and fits("exp(x) * ...", of) else None


def _derived_from_infinity(finding: Finding) -> bool:
    """Whether it is the derivative of an exponential that was Inf in the forward, of a finite operand."""
    at = forward_value(finding, "self") if forward_base(finding) in TORCH.having("exponential") else None
    return at is not None and abs(at) < INF and base(finding) == "mul" and has_infinite_operand(finding)


def _slope_of_infinity(finding: Finding) -> bool:
    """Whether the NaN of a derivative comes from an exponential that was Inf in the forward."""
    if forward_base(finding) in TORCH.having("exponential"):
        return is_nan(finding) and {abs(_factor(finding, n) or 0.0) for n in ("self", "other")} == {0.0, INF}
    below = forward_value(finding, "other") if forward_base(finding) in _QUOTIENTS else None
    return is_nan(finding) and below is not None and abs(below) == INF


def root_at_zero(finding: Finding) -> tuple[Expressions, NormalForm] | None:
    """Of a birth in the derivative of a root, or of a fractional power, at 0: what the root is taken of."""
    name = forward_base(finding)
    found = expressions(finding)
    if found is None or name not in ("sqrt", "pow", "float_power") or not forward_is_zero(finding, "self"):
        return None
    power = 0.5 if name == "sqrt" else found.exponent(found.middle)
    of = found.argument_term(found.middle, "self")
    return (found, without_coefficient(of)) if of is not None and power is not None and 0 < power < 1 else None


def quotients_by_zero(finding: Finding) -> tuple[Expressions, list[NormalForm]] | None:
    """Of a birth at a division by 0, or in its derivative: the quotient, and what was computed from it."""
    backward = finding.phase == "backward"
    name = forward_base(finding) if backward else base(finding)
    by = "other" if name in _QUOTIENTS else "self"
    found = expressions(finding)
    if found is None or name not in (*_QUOTIENTS, "reciprocal", "rsqrt", "pow"):
        return None
    if name == "pow" and not (found.exponent(found.middle) or 0) < 0:
        return None
    if not (forward_is_zero(finding, by) if backward else is_zero(finding, by)):
        return None
    return found, outcomes(found)


def mean_of_chosen(finding: Finding) -> tuple[Expressions, NormalForm] | None:
    """Of a birth at 0/0, in a mean over the elements that a mask or weights choose: the mask or the weights."""
    at = quotients_by_zero(finding)
    if at is None:
        return None
    return next(((at[0], found.terms["m"]) for term in at[1] for found in matches(_MEAN_OF_CHOSEN, term)), None)


def mean_of_segments(finding: Finding) -> bool:
    """Of a birth at 0/0: whether values summed by an index are divided by how often it occurs."""
    at = quotients_by_zero(finding)
    return at is not None and fits(_MEAN_OF_SEGMENTS, at[1][0])


def logarithms_of_zero(finding: Finding) -> list[NormalForm]:
    """Of a birth at the logarithm of 0, or in a derivative with it: what was computed from it."""
    at = logarithm_of_zero(finding)
    if at is not None:
        # xlogy is a product with its logarithm already
        made = without_coefficient(at[0].output_term(at[0].middle))
        return [*([made] if made.kind == "product" else []), *downstream(at[0])]
    product = zero_times_infinity(finding) if finding.phase == "backward" else None
    if product is not None:
        return [product[1], *downstream(product[0])]
    found = expressions(finding)
    if found is None or not _slope_of_product(finding):
        return []
    return outcomes(found)


def _slope_of_product(finding: Finding) -> bool:
    """Whether a derivative of xlogy or entr is that of a logarithm of 0."""
    name = readable(forward_base(finding))
    return (name == "xlogy" and forward_is_zero(finding, "other")) or (
        name == "entr" and forward_is_zero(finding, "self")
    )


def without_coefficient(term: NormalForm) -> NormalForm:
    """A term without the number that it is multiplied by."""
    if term.kind == "sum" and not term.constant and len(term.parts) == 1:
        return term.parts[0][0]
    return term


def outcomes(found: Expressions) -> list[NormalForm]:
    """The birth, and what was computed from it."""
    return [without_coefficient(found.output_term(found.middle)), *downstream(found)]


def downstream(found: Expressions) -> list[NormalForm]:
    """What was computed from the birth, the next first, without the numbers that it was multiplied by.

    Of a sum what is added as well: a product of vectors multiplies and adds in one operation.
    """
    terms = [without_coefficient(found.output_term(event)) for event in found.consumers()]
    return [
        part
        for term in terms
        for part in (term, *(map(without_coefficient, term.arguments) if term.is_call("sum") else ()))
    ]


def bounds(found: Expressions, term: NormalForm) -> str:
    """`` for x = -200``, or from where to where all of x is; empty where the values of a term are not known."""
    for operation in found.operations.values():
        for argument in operation.arguments:
            if argument.shape is None or argument.min is None or argument.max is None:
                continue
            if found.argument_term(operation.event, argument.name) != term:
                continue
            low, high = number_text(float(argument.min)), number_text(float(argument.max))
            return f" for x = {low}" if low == high else f" (all of x is from {low} to {high})"
    return ""


def logarithm_message(finding: Finding, what: str, of: str) -> str:
    """The sentence of a logarithm of 0: what is 0, and of which values."""
    if finding.phase == "backward":
        gradient = value(finding, "self")
        outcome = f": {number_text(gradient)} / 0 is {result(finding)}" if gradient is not None else ""
        return f"the derivative of {forward_base(finding)} divides by {what}, which is 0 here{of}{outcome}"
    name = operator_text(finding) if finding.phase == "inference" else base(finding)
    name = "log" if name == "xlogy" else name
    zero = "-1" if base(finding) == "log1p" else "0"
    return f"{name}({zero}) is {result(finding)}: {what} is 0 here{of}"


def exponential_message(finding: Finding, whole: str) -> str:
    """The sentence of exponentials that are too large, or whose sum is: the operand, and what they are a part of."""
    if base(finding) in _SUMS:
        return f"{operator_text(finding)} of {operands_text(finding)} exceeds {limit(finding)}, inside {whole}"
    if _derived_from_infinity(finding):
        shown = f"{forward_base(finding)}({number_text(forward_value(finding, 'self'))})"
        return f"{shown} was Inf in the forward, inside {whole}; its derivative, made of that, is {result(finding)}"
    backward = bool(forward_base(finding)) and base(finding) not in TORCH.having("exponential")
    at = forward_value(finding, "self") if backward else value(finding, "self")
    if backward and forward_base(finding) in _QUOTIENTS:
        return f"an exponential exceeds {limit(finding)}, and the derivative of {whole} is NaN: a quotient by Inf"
    name = (
        operator_text(finding) if finding.phase == "inference" else forward_base(finding) if backward else base(finding)
    )
    shown = f"{name}({number_text(at)})" if at is not None else name
    if backward:
        return f"{shown} exceeds {limit(finding)}, and 0 × Inf is NaN in the derivative of {whole}"
    return f"{shown} exceeds {limit(finding)}, inside {whole}"


def logarithm_product_message(finding: Finding, whole: str) -> str:
    """The sentence of the logarithm of 0 as a part of a product."""
    if finding.phase != "backward":
        return f"log(0) is {result(finding)}, in {whole}"
    if base(finding) == "mul":
        return product_message(finding, whole)
    above, below = value(finding, "self"), value(finding, "other")
    shown = (
        f"{number_text(above)} / {number_text(below)}"
        if base(finding) == "div" and None not in (above, below)
        else "log(0)"
    )
    return f"{shown} is {result(finding)}, in the derivative of {whole}"


def root_message(finding: Finding, what: str) -> str:
    """The sentence of the derivative of a root, or of a fractional power, at 0: what is 0."""
    if forward_base(finding) != "sqrt":
        lowered = value(finding, "exponent")
        power = "a power below 1" if lowered is None else f"y ** {number_text(lowered + 1)}"
        return f"the derivative of {power} is infinite at 0, and {what} is 0 here"
    gradient = value(finding, "self") if base(finding) == "div" else None
    outcome = f": {number_text(gradient)} / 0 is {result(finding)}" if gradient is not None else ""
    return f"the derivative of sqrt divides by twice the root, and {what} is 0 here{outcome}"


def quotient_message(finding: Finding, what: str) -> str:
    """The sentence of a division by 0: what it is divided by."""
    if finding.phase == "backward":
        return f"the derivative of a quotient divides by its denominator, and {what} is 0 here"
    above = value(finding, "self") if base(finding) in _QUOTIENTS else 1.0
    shown = f"{number_text(above)} / 0" if above is not None else "a division by 0"
    return f"{shown} is {result(finding)}: {what} is 0 here"


def zero_times_infinity(finding: Finding) -> tuple[Expressions, NormalForm] | None:
    """Of a birth at 0 times an infinity, or in the derivative of a product there: the product."""
    first, second = _factor(finding, "self"), _factor(finding, "other")
    found = expressions(finding)
    if (
        found is not None
        and base(finding) in TORCH.having("product-sum")
        and finding.birth == "invalid"
        and has_infinite_operand(finding)
    ):
        made = without_coefficient(found.output_term(found.middle))
        return (found, without_coefficient(made.arguments[0])) if made.is_call("sum") and is_nan(finding) else None
    if found is None or base(finding) != "mul" or first is None or second is None:
        return None
    if {abs(first), abs(second)} != {0.0, INF} or forward_base(finding) not in ("", "mul"):
        return None
    return found, without_coefficient(found.output_term(found.middle))


def product_message(finding: Finding, what: str) -> str:
    """The sentence of 0 times an infinity: which product it is."""
    first, second = number_text(_factor(finding, "self")), number_text(_factor(finding, "other"))
    if base(finding) in TORCH.having("product-sum"):
        return f"{operator_text(finding)} is NaN, because a product that it adds is 0 × Inf, in {what}"
    of = "in the derivative of" if finding.phase == "backward" else "in"
    return f"{first} × {second} is NaN, {of} {what}{_factors_named(finding)}"


def _factors_named(finding: Finding) -> str:
    """``: p is 0 and log_p is -Inf here``, as far as the source names the factors."""
    backward = finding.phase == "backward"
    name, at = (forward_operand_source, forward_value) if backward else (operand_source, _factor)
    told = [(name(finding, side), at(finding, side)) for side in ("self", "other")]
    known = [f"{text} is {number_text(number)}" for text, number in told if text and number is not None]
    return f": {' and '.join(known)} here" if known else ""


def _factor(finding: Finding, name: str) -> float | None:
    """The value of a factor; a mask of booleans has zeros and ones."""
    found = operand(finding, name)
    return float(found.value) if found is not None and isinstance(found.value, bool) else value(finding, name)


# -- A rule of one expression: the birth in it, the sentence of that, and why it breaks --------------------------------


Match = Callable[[Finding], Explanation | None]


def match_root(structure: str, what: str, why: str, *, where: Condition = lambda _: True) -> Match:
    """Matches the derivative of a root at 0 of a term with this structure, which is called so."""

    def match(finding: Finding) -> Explanation | None:
        at = root_at_zero(finding)
        if at is None or not fits(structure, at[1], where=where):
            return None
        return Explanation(root_message(finding, what), why, STRUCTURE)

    return match


def match_quotient(structure: str, what: str, why: str) -> Match:
    """Matches a division by 0, called so, where the quotient, or what was computed from it, has this structure."""

    def match(finding: Finding) -> Explanation | None:
        at = quotients_by_zero(finding)
        if at is None or not fits(structure, *at[1]):
            return None
        return Explanation(quotient_message(finding, what), why, STRUCTURE)

    return match


def match_logarithm(structure: str, what: str, why: str, *, masked: bool = True) -> Match:
    """Matches the logarithm of a term that is 0, called so, with this structure of an x.

    Without `masked` the 0 of a logit of -Inf, which is exact, is left to other rules.
    """

    def match(finding: Finding) -> Explanation | None:
        at = logarithm_of_zero(finding)
        of = None if at is None else operand_of(structure, at[1])
        if at is None or of is None or (not masked and is_exact_zero(finding)):
            return None
        return Explanation(logarithm_message(finding, what, bounds(at[0], of)), why, STRUCTURE)

    return match


def match_logarithm_product(structure: str, whole: str, why: str, *, where: Condition = lambda _: True) -> Match:
    """Matches the logarithm of 0 where what was computed from it, which is called so, has this structure."""

    def match(finding: Finding) -> Explanation | None:
        if not fits(structure, *logarithms_of_zero(finding), where=where):
            return None
        return Explanation(logarithm_product_message(finding, whole), why, STRUCTURE)

    return match


def match_exponential(structure: str, whole: str, why: str) -> Match:
    """Matches an exponential that is too large where something computed from it has this structure."""

    def match(finding: Finding) -> Explanation | None:
        found = exponential_too_large(finding)
        if found is None or not fits(structure, *outcomes(found)):
            return None
        return Explanation(exponential_message(finding, whole), why, STRUCTURE)

    return match


def match_product(fits: Callable[[Expressions, NormalForm], bool], what: str, why: str) -> Match:
    """Matches 0 times an infinity where the product fits, which is called so."""

    def match(finding: Finding) -> Explanation | None:
        at = zero_times_infinity(finding)
        return Explanation(product_message(finding, what), why, STRUCTURE) if at is not None and fits(*at) else None

    return match
