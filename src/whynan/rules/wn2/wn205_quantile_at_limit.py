"""WN205 quantile-at-limit: an inverse distribution function at or beyond the end of its domain.

What it is
    erfinv at -1 or 1, or ndtri at 0 or 1, or outside of that.

Why it breaks
    A quantile of probability 0 or 1 is infinite; there is none of anything beyond.

Example
    Bad::

        u = torch.tensor([1.0, 0.5])            # rand() can round to an end
        z = torch.erfinv(u)

    Good::

        u = torch.tensor([1.0, 0.5])
        z = torch.erfinv(u.clamp(-1 + 1e-6, 1 - 1e-6))

Fix
    Clamp the probability inside of its interval, by more than the dtype's rounding: 1e-6 for float32.

When it is fine
    Where the result is selected away, in backward too.

References
    torch.erfinv, torch.special.ndtri.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import base, number_text, result, value
from whynan.rules.intents import BELOW_ONE, guard
from whynan.rules.wording import derivative, named_value_text, operand_source, readable

_DOMAINS = {"erfinv": (-1.0, 1.0), "special_ndtri": (0.0, 1.0)}


def match(finding: Finding) -> Explanation | None:
    name, found = base(finding), value(finding, "self")
    if name not in _DOMAINS or found is None:
        return None
    low, high = _DOMAINS[name]
    if low < found < high:
        return None
    place = "an end" if found in (low, high) else "outside"
    where = derivative(finding) or named_value_text(operand_source(finding, "self"), number_text(found))
    return Explanation(
        f"{readable(name)}({number_text(found)}) is {result(finding)}, at {place} of its domain from {number_text(low)} to {number_text(high)}{where}"
        if place == "an end"
        else f"{readable(name)}({number_text(found)}) is {result(finding)}, outside of its domain from {number_text(low)} to {number_text(high)}{where}",
        "A quantile of probability 0 or 1 is infinite, and there is none beyond. Random numbers and probabilities can round to an end.",
        OPERATION,
    )


RULE = Rule(
    "WN205",
    "quantile-at-limit",
    match,
    fixes=(
        guard(
            "the numbers next to -1 and 1",
            "erfinv(x)",
            f"erfinv(clamp(x, min=-({BELOW_ONE}), max={BELOW_ONE}))",
        ),
        guard(
            "the numbers next to 0 and 1",
            "ndtri(x)",
            f"ndtri(where(x <= 0, finfo(x).tiny, where(x >= 1, {BELOW_ONE}, x)))",
        ),
    ),
)
