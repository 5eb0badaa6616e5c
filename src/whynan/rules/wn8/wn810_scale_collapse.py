"""WN810 scale-collapse: a loss scaler skips step after step, and no scale makes the gradients finite.

What it is
    A loss scaler skips each step whose gradients are NaN or Inf, and lowers its scale. Where the scale is at 1 or below
    and they still are, the scale is not why: something in the forward or in its derivative makes them so.

Why it breaks
    No weight moves any more, while the loop goes on and the scale falls towards 0; what is below the dtype's smallest
    number then underflows. A GradScaler that begins at 65,536 is at 1 after 16 halvings.

Example
    Bad::

        weight = torch.full((2,), -30.0, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
        for _ in range(8):
            optimizer.zero_grad()
            weight.grad = torch.special.erfcx(weight.detach())
            scaler.scale(weight.sum()).backward()
            scaler.step(optimizer)
            scaler.update()

    Good::

        weight = torch.full((2,), 30.0, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
        for _ in range(8):
            optimizer.zero_grad()
            weight.grad = torch.special.erfcx(weight.detach())
            scaler.scale(weight.sum()).backward()
            scaler.step(optimizer)
            scaler.update()

Fix
    Mend what is named as born; another scale, or a scaler that starts anew, changes nothing.

When it is fine
    A few skipped steps at the beginning, and one now and then: so a scaler finds its scale. They are no finding.

References
    torch.amp.GradScaler; Micikevicius et al., arXiv 1710.03740, section 3.2.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import OUTCOME, Explanation, Rule
from whynan.rules.facts import result
from whynan.rules.wording import scale_fall_text


def match(finding: Finding) -> Explanation | None:
    fall = finding.scale_fall
    if fall is None:
        return None
    what = finding.op or "what came in"
    return Explanation(
        f"{scale_fall_text(fall)}; {what} still gives {result(finding)}",
        "It is not the scale that makes it so.",
        OUTCOME,
    )


RULE = Rule("WN810", "scale-collapse", match)
