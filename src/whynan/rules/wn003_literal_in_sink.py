"""WN003 literal-in-sink: a constant Inf or NaN arrived in a loss, a gradient or a parameter.

What it is
    An infinity that the program itself writes (a mask, an initial minimum) was carried into a fatal sink.

Why it breaks
    A masked place was selected or reduced although it should have been left out.

Example
    Bad::

        loss = logits.masked_fill(mask, -inf).log_softmax(-1)[range(n), target].neg().mean()

    Good::

        loss = F.cross_entropy(logits.masked_fill(mask, -inf), target, ignore_index=-100)

Fix
    Keep masked places out of the reduction: select only valid targets, or weight them with where, not by
    multiplication.

When it is fine
    Scores that merely leave (generate returns -inf by design) are not reported.

References
    -
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, is_nan, said

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if finding.birth != "literal":
        return None
    word = "NaN" if is_nan(finding) else said(finding.element.value)
    source = finding.message or "a constant that the program writes"
    return Explanation(
        f"{source} ({word}) arrives in {finding.reaches[0].kind if finding.reaches else 'a sink'} through {base(finding) or 'a copy'}",
        "The value was written on purpose, and then selected or reduced where it should have been left out.",
    )


RULE = Rule("WN003", "literal-in-sink", match)
