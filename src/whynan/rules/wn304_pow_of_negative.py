"""WN304 pow-of-negative: a fractional power of a negative number.

What it is
    pow meets a negative base and an exponent that is no integer.

Why it breaks
    There is no real value: NaN.

Example
    Bad::

        y = x ** 0.5

    Good::

        y = x.clamp_min(0).sqrt()

Fix
    Bound the base, or write sign(x) * |x| ** p where that is meant.

When it is fine
    Never.

References
    -
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.floats import format_value
from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, said, spelled, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    found, exponent = value(finding, "self"), value(finding, "exponent")
    if base(finding) != "pow" or found is None or not found < 0 or exponent is None or exponent.is_integer():
        return None
    return Explanation(
        f"({said(found)}) ** {format_value(exponent, digits=6)} is NaN: {spelled(finding, 'self')} is negative here",
        "A negative number has no real fractional power.",
        2,
    )


RULE = Rule("WN304", "pow-of-negative", match)
