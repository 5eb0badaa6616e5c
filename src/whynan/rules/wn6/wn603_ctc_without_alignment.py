"""WN603 ctc-without-alignment: an input too short for its target.

What it is
    The CTC loss sums over all alignments of the target with the input, at least one input step for each symbol. Where
    none is possible, also because a symbol has the log-probability -Inf, the loss is Inf and its gradient NaN.

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

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import INF, all_finite, base, is_nan, number_text, row
from whynan.rules.intents import guard


def match(finding: Finding) -> Explanation | None:
    if base(finding) == "_ctc_loss_backward" and INF in (row(finding, "neg_log_likelihood") or ()):
        return _backward(finding)
    if base(finding) not in ("_ctc_loss", "_cudnn_ctc_loss") or finding.element.value != INF or not all_finite(finding):
        return None
    steps, symbols = row(finding, "input_lengths"), row(finding, "target_lengths")
    lengths = f": {_span(steps)} input steps for {_span(symbols)} symbols" if steps and symbols else ""
    whose = _sample(finding)
    if whose and steps and symbols and (steps[0] != steps[1] or symbols[0] != symbols[1]):
        lengths += " in the batch"
    return Explanation(
        f"the CTC loss{whose} is Inf, because {'its' if whose else 'a'} target has no alignment with its input{lengths}",
        "Each symbol takes a step of the input, and two equal symbols in a row take one more for the blank between them.",
        OPERATION,
    )


def _backward(finding: Finding) -> Explanation | None:
    """The derivative of a loss that was Inf, which subtracts that Inf from another."""
    if not is_nan(finding):
        return None
    low = row(finding, "log_probs")
    masked = low is not None and low[0] == -INF
    return Explanation(
        "the derivative of the CTC loss is NaN, because the loss itself was Inf in the forward"
        + (", and log-probabilities of -Inf are among its input" if masked else ""),
        "The derivative subtracts the loss from the logarithm of each path. A target whose symbol has the log-probability -Inf "
        "has no path that is possible, just as one that is too long: mask with a finite number, or give zero_infinity=True."
        if masked
        else "The derivative subtracts the loss from the logarithm of each path, and Inf - Inf has no value. zero_infinity=True "
        "leaves such a target out.",
        OPERATION,
    )


def _sample(finding: Finding) -> str:
    """Which of a batch; the loss of each is an element."""
    element = finding.element
    return f" of sample {element.index[0]}" if element.index and element.total > 1 else ""


def _span(lengths: tuple[float, float]) -> str:
    """One length, or the least and greatest of the batch: which of them is this sample's is not known."""
    low, high = lengths
    return number_text(low) if low == high else f"{number_text(low)} to {number_text(high)}"


RULE = Rule(
    "WN603",
    "ctc-without-alignment",
    match,
    fixes=(
        guard(
            "zero_infinity=True",
            "ctc_loss(p, t, n, s, blank=b, reduction=r)",
            "ctc_loss(p, t, n, s, blank=b, reduction=r, zero_infinity=True)",
        ),
    ),
)
