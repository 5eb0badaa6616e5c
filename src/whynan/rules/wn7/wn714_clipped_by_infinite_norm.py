"""WN714 clipped-by-infinite-norm: gradients that clipping makes 0, because their norm has overflowed.

What it is
    torch.nn.utils.clip_grad_norm_ of float16 gradients whose norm is above 65504, or any scaling by max_norm / norm.

Why it breaks
    The norm is Inf, the factor max_norm / Inf is 0, and every gradient times 0 is 0. The step changes nothing, and nothing
    is NaN.

Example
    Bad::

        w = torch.zeros(8, dtype=torch.float16, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        (w * 30000.0).sum().backward()
        torch.nn.utils.clip_grad_norm_([w], 1.0)
        optimizer.step()

    Good::

        w = torch.zeros(8, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        (w * 30000.0).sum().backward()
        torch.nn.utils.clip_grad_norm_([w], 1.0)
        optimizer.step()

Fix
    Keep weights and gradients in float32 (autocast computes in float16), or compute the norm there. After a loss scaler's
    unscale_, not before it.

When it is fine
    Never: a step is lost, and its gradients with it.

References
    torch.nn.utils.clip_grad_norm_, error_if_nonfinite=True.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.facts import damage_of, number_text
from whynan.rules.intents import setting


def match(finding: Finding) -> Explanation | None:
    damage = damage_of(finding, "zeroed")
    if damage is None:
        return None
    gradients = int(damage.numbers.get("gradients", 1))
    of = (
        f"all {damage.total:,} elements of {gradients:,} gradients"
        if gradients > 1
        else f"all {damage.total:,} elements"
    )
    limit = number_text(damage.numbers.get("limit"))
    return Explanation(
        f"the norm of the gradients exceeds {limit} and is Inf: {of} are scaled by 1 / Inf, and are 0",
        f"The norm has the dtype of the gradients, {finding.element.dtype}. Keep weights and gradients in float32 and "
        "compute in low precision by autocast; error_if_nonfinite=True would have told.",
        STRUCTURE,
    )


RULE = Rule(
    "WN714",
    "clipped-by-infinite-norm",
    match,
    also=("WN8",),
    reads=("gradients",),
    modes=("trace", "watch"),
    fixes=(
        setting("torch.nn.utils.clip_grad_norm_(parameters, max_norm, error_if_nonfinite=True) on float32 gradients"),
    ),
)
