"""WN004 spoilt-before: what a step works on was bad before what was looked at.

What it is
    A watched training comes to a bad step, and what that step began with was NaN or Inf already: an optimizer has
    spoilt a weight in a step before, or an evaluation the statistics of a normalisation. Or only the part of the step
    from the call of its model on could be run again, and what the program made ahead of that call was bad there.

Why it breaks
    The gradients that a step is made of may be finite and its update not: 0/0 where eps is 0, a decay or a learning
    rate out of range, a state that has overflowed. The next forward then meets the weight.

Example
    Bad::

        weight = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.Adam([weight], eps=0)
        with whynan.watch(optimizer) as w:
            for _ in range(2):
                optimizer.zero_grad()
                (weight * torch.tensor([0.0, 1.0])).sum().backward()
                optimizer.step()

    Good::

        weight = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.Adam([weight], eps=1e-8)
        with whynan.watch(optimizer) as w:
            for _ in range(2):
                optimizer.zero_grad()
                (weight * torch.tensor([0.0, 1.0])).sum().backward()
                optimizer.step()

Fix
    Look at the step in which it was spoilt: ``whynan run --start-step`` traces the optimizer's own operations.

When it is fine
    Never.

References
    Kingma and Ba, arXiv 1412.6980: the update divides by sqrt(v) + eps.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import result
from whynan.rules.wording import bad_since_kind, origin_kind


def match(finding: Finding) -> Explanation | None:
    if finding.birth not in ("entered", "literal"):
        return None
    stepped = bad_since_kind(finding) == "spoilt_during"
    ahead = origin_kind(finding) == "ahead"
    if not stepped and not ahead and bad_since_kind(finding) != "bad_before":
        return None
    element = finding.element
    told = f"is bad and gives {result(finding)}"
    if finding.birth == "entered":
        place = f" at {list(element.index)}" if element.index else ""
        told = f"holds {result(finding)}{place}: {element.count:,} of its {element.total:,} elements"
    explained = _STEPPED if stepped else _AHEAD if ahead else _THERE
    return Explanation(f"{finding.message} {told}", explained, OPERATION)


_STEPPED = (
    "Nothing that was run again made it: it was there when the step began. The update of that step or of one before it "
    "made it, or what the program does to its weights between the steps."
)
_THERE = "Nothing that was run again made it: it was there when the step began."
_AHEAD = (
    "The step was run again from there on, and not what it does ahead of that, which has made it, or was given it as "
    "data. whynan run --start-step with the number of the step looks at all of it."
)

RULE = Rule("WN004", "spoilt-before", match)
