"""WN603 ctc-without-alignment: an input too short for its target.

What it is
    The CTC loss sums over all alignments of the target with the input, at least one input step for each symbol.

Why it breaks
    An input with fewer steps than the target needs has no alignment: the loss is Inf and its gradient NaN.

Example
    Bad::

        log_probs = torch.zeros(3, 1, 4).log_softmax(-1)
        target = torch.tensor([[1, 1, 2]])              # needs four steps: a blank between equal symbols
        loss = F.ctc_loss(log_probs, target, torch.tensor([3]), torch.tensor([3]))

    Good::

        log_probs = torch.zeros(3, 1, 4).log_softmax(-1)
        target = torch.tensor([[1, 1, 2]])
        loss = F.ctc_loss(log_probs, target, torch.tensor([3]), torch.tensor([3]), zero_infinity=True)

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

from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import INF, all_finite, base, row, said

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if base(finding) not in ("_ctc_loss", "_cudnn_ctc_loss") or finding.element.value != INF or not all_finite(finding):
        return None
    steps, symbols = _span(row(finding, "input_lengths")), _span(row(finding, "target_lengths"))
    lengths = f": {steps} input steps for {symbols} symbols" if steps and symbols else ""
    return Explanation(
        f"the CTC loss is Inf, because a target has no alignment with its input{lengths}",
        "Each symbol takes a step of the input, and two equal symbols in a row take one more for the blank between them.",
        OPERATION,
    )


def _span(lengths: tuple[float, float] | None) -> str:
    """One length, or the least and greatest of the batch: which of them is this sample's is not known."""
    if lengths is None:
        return ""
    low, high = lengths
    return said(low) if low == high else f"{said(low)} to {said(high)}"


RULE = Rule("WN603", "ctc-without-alignment", match)
