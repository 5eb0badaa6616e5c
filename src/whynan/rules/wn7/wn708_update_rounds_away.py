"""WN708 update-rounds-away: an optimizer's update that is too small to change any element of a parameter.

What it is
    A parameter in bfloat16 or float16, and an update that is smaller than half of the distance to the next number.

Why it breaks
    The sum is rounded to what the parameter was. Each step does so again: nothing is learned, and the loss stays where it
    is without any sign of an error.

Example
    Bad::

        w = torch.ones(8, dtype=torch.bfloat16, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=1e-3)
        w.sum().backward()
        optimizer.step()

    Good::

        w = torch.ones(8, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=1e-3)
        with torch.autocast("cpu", torch.bfloat16):
            loss = w.sum()
        loss.backward()
        optimizer.step()

Fix
    Keep the weights in float32 and compute in bfloat16 by autocast, or have a float32 copy of the weights in the optimizer,
    or round stochastically.

When it is fine
    In the first steps of a warm-up, as long as the learning rate rises.

References
    torch.autocast. Kahan summation and stochastic rounding for training in pure bfloat16: Zamirai et al., 2020.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.facts import damage_of, number_text
from whynan.rules.intents import setting


def match(finding: Finding) -> Explanation | None:
    damage = damage_of(finding, "stalled")
    if damage is None:
        return None
    numbers, dtype = damage.numbers, finding.element.dtype
    name = finding.element.tensor or "a parameter"
    update, ulp, least = (number_text(numbers.get(key)) for key in ("update", "ulp", "least"))
    several = int(numbers.get("parameters", 1))
    more = f", nor any element of {several - 1:,} more" if several > 1 else ""
    return Explanation(
        f"the step moves no element of {name}{more}: the update is {update} at most, and the next {dtype} number is "
        f"{ulp} away, at the least magnitude {least}",
        f"Gradients and learning rate ({number_text(numbers.get('rate'))}) are not 0, but less than half of that distance is "
        "rounded away, in this step as in the next. Keep the weights in float32 and compute in low precision by autocast, "
        "or round stochastically.",
        STRUCTURE,
    )


RULE = Rule(
    "WN708",
    "update-rounds-away",
    match,
    also=("WN8",),
    reads=("parameters",),
    modes=("trace", "watch"),
    fixes=(setting("float32 parameters, and torch.autocast with dtype=torch.bfloat16 for the computation"),),
)
