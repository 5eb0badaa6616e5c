"""WN602 loss-without-targets: a mean loss in which every target is ignored.

What it is
    nll_loss or cross_entropy with reduction mean, where every target is ignore_index or has weight 0; the same written out.

Why it breaks
    The sum of the weights is 0: 0/0 is NaN. The gradients may still be finite.

Example
    Bad::

        logits = torch.zeros(2, 3)
        labels = torch.tensor([-100, -100])
        loss = F.cross_entropy(logits, labels)

    Good::

        logits = torch.zeros(2, 3)
        labels = torch.tensor([-100, -100])
        loss = F.cross_entropy(logits, labels, reduction="sum") / (labels != -100).sum().clamp_min(1)

Fix
    Skip such a batch, or divide a sum by the count, at least 1.

When it is fine
    Never as a training loss.

References
    pytorch #70348, #75181.
"""

from __future__ import annotations

import math

from whynan.expr import Expressions, NormalForm
from whynan.expr.structure import operand as operand_of
from whynan.ops.table import TORCH
from whynan.records import Finding
from whynan.rules.base import OPERATION, STRUCTURE, Explanation, Rule
from whynan.rules.expressions import mean_of_chosen, quotient_message
from whynan.rules.facts import base, has_empty_operand, is_nan, is_onnx, number_text, operand, row, value
from whynan.rules.intents import QUOTIENT, reformulation
from whynan.rules.wording import operand_source

_WHY = "The mean divides by the sum of the weights of all targets: 0 for a target that is ignored or whose class has weight 0."
_COMPARISONS = ("ne", "eq", "equal", "not_equal")


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if name in ("div", "true_divide"):
        return _written_out(finding)
    scores = row(finding, "self")
    # an ONNX node writes its reduction as a word: that of one number is a mean or a sum, and a sum has no 0 / 0
    mean = finding.element.shape == () if is_onnx(finding) else value(finding, "reduction") == 1
    if not is_nan(finding) or not mean:
        return None
    if scores is not None and not all(math.isfinite(v) for v in scores):
        return None
    if name in ("nll_loss_forward", "nll_loss2d_forward"):
        return Explanation(f"the mean of the loss is 0 / 0: {_targets(finding)}", _WHY, OPERATION)
    if name in ("nll_loss_backward", "nll_loss2d_backward") and value(finding, "total_weight") == 0:
        return Explanation(
            f"the gradient of the mean of the loss divides by the total weight 0: {_targets(finding)}", _WHY, OPERATION
        )
    return None


def _written_out(finding: Finding) -> Explanation | None:
    """A mean over the targets that are not equal to one number."""
    at = mean_of_chosen(finding)
    if at is None or finding.birth != "invalid" or not _is_of_labels(*at):
        return None
    return Explanation(quotient_message(finding, "the number of targets that are not ignored"), _WHY, STRUCTURE + 1)


def _is_of_labels(found: Expressions, chosen: NormalForm) -> bool:
    """Whether a mask compares whole numbers with a negative one, or what is averaged is a loss of classes.

    A mask of what is not 0 alone may be one of words that are no padding.
    """
    mask = operand_of("where(x, ...)", chosen) or chosen
    mask = operand_of("~x", mask) or mask
    for operation in found.named(*_COMPARISONS):
        if found.output_term(operation.event) == mask:
            given, other = (
                found.recorded_argument(operation.event, *names) for names in (("self", "A"), ("other", "B"))
            )
            whole = given is not None and given.dtype is not None and given.dtype.startswith(("int", "uint"))
            ignored = other is not None and other.value is not None and other.value < 0
            return whole and (ignored or any(o.event < found.middle for o in found.named(*TORCH.having("WN602"))))
    return False


def _targets(finding: Finding) -> str:
    name = operand_source(finding, "target") or "the target"
    if has_empty_operand(finding):
        return f"{name} is empty"
    span, ignored = row(finding, "target"), value(finding, "ignore_index")
    if span is not None and span[0] == span[1] == ignored:
        return f"{name} holds nothing but {number_text(ignored)}, the ignore_index"
    if operand(finding, "weight") is None:
        return f"every target in {name} is ignored"
    return f"the class of every target in {name} has weight 0 or is ignored"


RULE = Rule(
    "WN602",
    "loss-without-targets",
    match,
    torch="all",
    fixes=(
        *(
            reformulation(
                "the sum of the losses over the number of targets, at least 1",
                f"{name}(x, t{given})",
                f"{name}(x, t{given}, reduction='sum') / clamp(sum(t != {ignored}), min=1)",
            )
            for name in ("cross_entropy", "nll_loss")
            for given, ignored in ((", ignore_index=i", "i"), ("", "-100"))
        ),
        *QUOTIENT,
    ),
)
