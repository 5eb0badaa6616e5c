"""WN402 arc-at-limit: acos, asin, atanh or acosh at or beyond the end of its domain.

What it is
    The operand is exactly at an end of the domain (in backward, for atanh in forward too), or beyond it.

Why it breaks
    The slope is infinite at the end, and there is no value beyond it.

Example
    Bad::

        cosine = torch.tensor([1.0, 0.5], requires_grad=True)
        angle = torch.acos(cosine)
        angle.sum().backward()

    Good::

        cosine = torch.tensor([1.0, 0.5], requires_grad=True)
        angle = torch.acos(cosine.clamp(-1 + 1e-7, 1 - 1e-7))
        angle.sum().backward()

Fix
    Clamp inside, or compute the angle with atan2 of cross and dot product.

When it is fine
    Where no gradient flows and the operand is inside.

References
    torch.acos, torch.atanh.
"""

from __future__ import annotations

import math

from whynan.records import Finding
from whynan.rules.base import DERIVATIVE, OPERATION, Explanation, Rule
from whynan.rules.facts import base, forward_base, forward_value, is_nan, is_onnx, number_text, result, value
from whynan.rules.intents import BELOW_ONE, epsilon, guard
from whynan.rules.wording import forward_operand_source, named_value_text, operand_source

_DOMAINS = {
    "acos": (-1.0, 1.0, "from -1 to 1", "-1 / sqrt(1 - x²)"),
    "asin": (-1.0, 1.0, "from -1 to 1", "1 / sqrt(1 - x²)"),
    "atanh": (-1.0, 1.0, "between -1 and 1", "1 / (1 - x²)"),
    "acosh": (1.0, math.inf, "from 1 upwards", "1 / sqrt(x² - 1)"),
}
# as near to 1 as the rounding of a normalised product of long vectors in half precision gets
_ROUNDING = 1e-2


def match(finding: Finding) -> Explanation | None:
    name, of = base(finding), forward_base(finding)
    if of in _DOMAINS:
        return _derivative(finding, of)
    found = value(finding, "self")
    if name not in _DOMAINS or found is None:
        return None
    low, high, domain, _ = _DOMAINS[name]
    if not low <= found <= high and is_nan(finding):
        return Explanation(
            f"{name}({number_text(found)}) is NaN: {operand_source(finding, 'self') or 'the operand'} is outside of the domain {domain}",
            _outside(found, low, high),
            OPERATION,
        )
    if name == "atanh" and abs(found) == 1:
        return Explanation(
            f"atanh({number_text(found)}) is {result(finding)}{named_value_text(operand_source(finding, 'self'), number_text(found))}",
            "atanh is infinite at both ends of its domain"
            + ("." if is_onnx(finding) else ", and so is its derivative."),
            OPERATION,
        )
    return None


def _derivative(finding: Finding, of: str) -> Explanation | None:
    low, high, domain, slope = _DOMAINS[of]
    behind = forward_value(finding, "self")
    if behind is None or low < behind < high:
        return None
    name = forward_operand_source(finding, "self")
    if behind in (low, high):
        return Explanation(
            f"the derivative of {of} is {slope}, which is infinite at {number_text(behind)}{named_value_text(name, number_text(behind))}",
            "The slope of such a function grows without bound towards the end of its domain. Where the gradient that "
            "comes in is 0, its product with that slope is NaN.",
            DERIVATIVE,
        )
    return Explanation(
        f"the derivative of {of} is {slope}, which has no value at {number_text(behind)}: {name or 'the operand'} is outside of the domain {domain}",
        "The derivative is computed for each element, even where the forward's NaN was selected away afterwards.",
        DERIVATIVE,
    )


def _outside(found: float, low: float, high: float) -> str:
    if min(abs(found - low), abs(found - high)) < _ROUNDING:
        return "It lies just beyond the end, as after a rounding error: a cosine of parallel vectors can round above 1."
    return "It lies far beyond the end: nothing bounds the operand."


RULE = Rule(
    "WN402",
    "arc-at-limit",
    match,
    fixes=(
        *(
            guard(
                "a gradient of 0 at the ends of the domain and beyond",
                f"{name}(x)",
                f"where(abs(x) >= 1, {name}(clamp(detach(x), min=-1, max=1)), {name}(where(abs(x) >= 1, 0, x)))",
                magnitude="abs(x)",
            )
            for name in ("acos", "asin")
        ),
        guard("0 at 1 and below", "acosh(x)", "where(x <= 1, 0, acosh(where(x <= 1, 2, x)))"),
        guard("the numbers next to -1 and 1", "atanh(x)", f"atanh(clamp(x, min=-({BELOW_ONE}), max={BELOW_ONE}))"),
        *(
            epsilon(
                "an operand within 1e-6 of the ends", f"{name}(x)", f"{name}(clamp(x, min=-1 + 1e-6, max=1 - 1e-6))"
            )
            for name in ("acos", "asin", "atanh")
        ),
    ),
)
