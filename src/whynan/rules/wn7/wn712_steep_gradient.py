"""WN712 steep-gradient: a gradient above 1e10, still finite, that an optimizer's step consumes.

What it is
    A derivative beside a pole (of 1/x, of the square root, of log), or a product of many, that has not overflowed yet.

Why it breaks
    One such step throws the weights out of all proportion, and an optimizer that keeps squares of gradients has Inf in them
    soon. Nothing is NaN, so no check for it tells.

Example
    Bad::

        x = torch.full((2,), 1e-24, requires_grad=True)
        optimizer = torch.optim.SGD([x], lr=1e-16)
        x.sqrt().sum().backward()
        optimizer.step()

    Good::

        x = torch.full((2,), 1e-24, requires_grad=True)
        optimizer = torch.optim.SGD([x], lr=1e-16)
        (x + 1e-6).sqrt().sum().backward()
        optimizer.step()

Fix
    Find the expression whose derivative is so large (torch.autograd.grad of its parts, or a larger eps there), and clip the
    norm of the gradients.

When it is fine
    Where the loss is of such a scale itself, as a physical quantity may be.

References
    torch.nn.utils.clip_grad_norm_.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.facts import damage_of, number_text, other_elements_text
from whynan.rules.intents import setting


def match(finding: Finding) -> Explanation | None:
    damage = damage_of(finding, "steep")
    if damage is None:
        return None
    name = f"the gradient of {finding.element.tensor}" if finding.element.tensor else "a gradient"
    largest, limit = number_text(damage.numbers.get("largest")), number_text(damage.numbers.get("limit"))
    return Explanation(
        f"{name} is {number_text(finding.element.value)} here, which the step consumes{other_elements_text(damage)}; the greatest is {largest}",
        f"It is finite, and above {limit}: beside a pole, or a product that is about to overflow. Find the expression "
        "whose derivative is so large, and clip the norm of the gradients.",
        STRUCTURE,
    )


RULE = Rule(
    "WN712",
    "steep-gradient",
    match,
    also=("WN8",),
    reads=("gradients",),
    modes=("trace", "watch"),
    fixes=(setting("torch.nn.utils.clip_grad_norm_(parameters, max_norm=1.0) before the step"),),
)
