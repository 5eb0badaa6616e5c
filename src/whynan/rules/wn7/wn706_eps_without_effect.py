"""WN706 eps-without-effect: a small constant, or a bound beside 1, that the dtype rounds away where it was needed.

What it is
    x + 1e-8 or x.clamp(min=1e-8) in float16 where x is 0, and p.clamp(max=1 - 1e-8) in float32 where p is 1.

Why it breaks
    The constant is 0 in that dtype, or the bound is 1, and what it should keep away from stays there. As long as nothing
    divides by it or takes its logarithm, nobody notices.

Example
    Bad::

        x = torch.tensor([0.0, 1.0], dtype=torch.float16)
        y = torch.sqrt(x + 1e-8)

    Good::

        x = torch.tensor([0.0, 1.0], dtype=torch.float16)
        y = torch.sqrt(x + 1e-4)

Fix
    Take an eps that the dtype has room for: 1e-4 for float16; 1 - 1e-6 for float32, 1 - 1e-3 for float16 and 1 - 8e-3
    for bfloat16. Or compute in float32.

When it is fine
    Where nothing needs it: then it can go. Where the program compares the result with 0, it knows, and nothing is said.

References
    torch.finfo. Where it has made a bad number already: WN704, WN705.
"""

from __future__ import annotations

from whynan.floats import smallest
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.facts import damage_of, number_text, operand_before, other_elements_text
from whynan.rules.intents import BELOW_ONE, epsilon


def match(finding: Finding) -> Explanation | None:
    damage, before = damage_of(finding, "vanished"), operand_before(finding)
    dtype = finding.element.dtype
    least = smallest(dtype)
    if damage is None or before is None or least is None:
        return None
    eps = number_text(damage.numbers.get("eps"))
    name = before.expression or "an element"
    end = damage.numbers.get("bound", 0.0)
    if end == 0:
        return Explanation(
            f"{eps} is 0 in {dtype}: {name} is 0 here and stays so{other_elements_text(damage)}",
            f"The smallest number of {dtype} is {number_text(least)}: what is added changes nothing, and a clamp at it "
            "keeps nothing away from 0. Take a constant that the dtype has room for, or compute in float32.",
            STRUCTURE,
        )
    return Explanation(
        f"a bound of {'-' if end < 0 else ''}(1 - {eps}) is {number_text(end)} in {dtype}: {name} is {number_text(end)} behind it{other_elements_text(damage)}",
        f"{dtype} has no number so close to {number_text(end)}: the clamp keeps nothing away from it, where log(1 - x), logit and "
        "atanh have a pole. Take a wider margin, or compute from the logits.",
        STRUCTURE,
    )


RULE = Rule(
    "WN706",
    "eps-without-effect",
    match,
    reads=("bounds",),
    modes=("trace",),
    fixes=(
        epsilon("the smallest normal number of the dtype", "x + e", "x + finfo(x).tiny"),
        epsilon("the smallest normal number of the dtype", "clamp(x, min=e)", "clamp(x, min=finfo(x).tiny)"),
        epsilon("the number next to 1", "clamp(x, min=a, max=b)", f"clamp(x, min=a, max={BELOW_ONE})"),
    ),
)
