"""WN710 saturated-cast: a cast to a format without infinities, of numbers that are out of its range.

What it is
    x.to(torch.float8_e4m3fn) where an element of x is larger than 448.

Why it breaks
    There is no Inf in float8_e4m3fn: 1000 becomes 448, and so does Inf itself. What follows is finite and wrong.

Example
    Bad::

        x = torch.tensor([1000.0, 3.0])
        y = x.to(torch.float8_e4m3fn)

    Good::

        x = torch.tensor([1000.0, 3.0])
        scale = 448 / x.abs().max()
        y = (x * scale).to(torch.float8_e4m3fn)

Fix
    Divide by a scale before the cast, so that the greatest magnitude is the format's maximum, and multiply by it after.

When it is fine
    Where outliers are cut off on purpose: then x.clamp(-448, 448) before the cast says so.

References
    OCP 8-bit Floating Point Specification 1.0, 5.2. torch.float8_e4m3fn.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.facts import damage_of, number_text, operand_before, share, value_before
from whynan.rules.intents import setting


def match(finding: Finding) -> Explanation | None:
    damage, before = damage_of(finding, "saturated"), operand_before(finding)
    if damage is None or before is None:
        return None
    dtype, element = finding.element.dtype, finding.element
    return Explanation(
        f"{before.expression or 'an element'} is {number_text(value_before(finding))} and becomes {number_text(element.value)}: beyond the range of "
        f"{dtype} are {share(damage)}, the greatest of magnitude {number_text(damage.numbers.get('largest'))}",
        f"{dtype} has no infinities, so nothing tells that a number was out of its range. Divide by a scale before the "
        "cast, or clamp where outliers are meant to be cut off.",
        STRUCTURE,
    )


RULE = Rule(
    "WN710",
    "saturated-cast",
    match,
    reads=("ranges",),
    modes=("trace",),
    fixes=(
        setting(
            "x * (448 / x.abs().amax()) before the cast to float8_e4m3fn, and the same factor divided out after it"
        ),
    ),
)
