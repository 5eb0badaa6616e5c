"""WN802 gradient-accumulation-overflow: two finite gradients whose sum does not fit.

What it is
    Gradients are added, in the engine or into .grad, and the sum exceeds the dtype.

Why it breaks
    The addends are finite; the sum is not.

Example
    Bad::

        weight = torch.ones(1, dtype=torch.float16, requires_grad=True)
        for micro in (40000.0, 50000.0):
            (weight * micro).backward()

    Good::

        weight = torch.ones(1, dtype=torch.float16, requires_grad=True)
        for micro in (40000.0, 50000.0):
            (weight * micro / 2).backward()

Fix
    Divide each micro-batch's loss by their number, lower the loss scale, or accumulate in float32.

When it is fine
    Where a loss scaler finds it and skips the step.

References
    torch.amp, gradient accumulation.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import SETTING, Explanation, Rule
from whynan.rules.facts import all_finite, excess, is_nan, overflows, result
from whynan.rules.intents import setting
from whynan.rules.wording import exact_attempt


def match(finding: Finding) -> Explanation | None:
    if finding.phase != "accumulation" or is_nan(finding) or not all_finite(finding):
        return None
    attempt, dtype = exact_attempt(finding), finding.element.dtype
    if attempt is None or not overflows(attempt.result, dtype):
        return None
    return Explanation(
        f"two gradients are added: {attempt.words} {excess(attempt.result, dtype, shown=False)}, so that the sum is {result(finding)}",
        "Each addend is finite; what accumulates is too large for the dtype.",
        SETTING,
    )


RULE = Rule(
    "WN802",
    "gradient-accumulation-overflow",
    match,
    fixes=(
        setting("the loss of each micro-batch divided by their number"),
        setting("torch.amp.GradScaler with a smaller init_scale"),
    ),
)
