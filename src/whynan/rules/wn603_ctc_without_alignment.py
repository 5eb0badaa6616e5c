"""WN603 ctc-without-alignment: an input too short for its target.

What it is
    The CTC loss sums over all alignments of the target with the input, at least one input step for each symbol.

Why it breaks
    An input with fewer steps than the target needs has no alignment: the loss is Inf and its gradient NaN.

Example
    Bad::

        loss = F.ctc_loss(log_probs, targets, input_lengths, target_lengths)

    Good::

        loss = F.ctc_loss(log_probs, targets, input_lengths, target_lengths, zero_infinity=True)

Fix
    Drop such samples, subsample the input less, or set zero_infinity=True.

When it is fine
    With zero_infinity=True.

References
    torch.nn.CTCLoss, zero_infinity; Graves et al., ICML 2006.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, said, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if base(finding) not in ("_ctc_loss", "_cudnn_ctc_loss") or finding.element.value != float("inf"):
        return None
    steps, symbols = value(finding, "input_lengths"), value(finding, "target_lengths")
    lengths = "" if steps is None or symbols is None else f": {said(steps)} steps for a target of {said(symbols)}"
    return Explanation(
        f"no alignment exists{lengths}, so that the CTC loss is Inf",
        "Each symbol takes a step of the input, and two equal symbols in a row a blank between them.",
        2,
    )


RULE = Rule("WN603", "ctc-without-alignment", match)
