"""WN501 softmax-all-masked: softmax over a row of nothing but -Inf.

What it is
    Every place of a row is masked with -Inf.

Why it breaks
    softmax subtracts the maximum, -Inf - (-Inf), which is NaN.

Example
    Bad::

        scores = torch.zeros(2, 3)
        mask = torch.tensor([[True, True, True], [False, True, True]])     # a row of padding only
        p = scores.masked_fill(mask, -inf).softmax(-1)

    Good::

        scores = torch.zeros(2, 3)
        mask = torch.tensor([[True, True, True], [False, True, True]])
        p = scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)

Fix
    Use the dtype's most negative finite value, unmask one place, or skip the row.

When it is fine
    Where the row is dropped before a loss, in backward too.

References
    pytorch #41508, PR #131060.
"""

from __future__ import annotations

from whynan.expr.structure import fits
from whynan.records import Finding
from whynan.rules.base import OPERATION, STRUCTURE, Explanation, Rule
from whynan.rules.expressions import downstream, expressions
from whynan.rules.facts import INF, base, is_nan, row, value
from whynan.rules.intents import MASKED
from whynan.rules.wording import operand_source, operator_text

_SOFTMAXES = ("_softmax", "_log_softmax", "softmax", "log_softmax")
_WRITTEN = ("softmax", "log_softmax", "logsumexp")
_WHY = (
    "Nothing in this row is left: most often every place is masked, by a sequence of padding only, or by a causal and a "
    "padding mask together."
)


def match(finding: Finding) -> Explanation | None:
    if base(finding) == "attention":
        return _attention(finding)
    if base(finding) == "sub":
        return _written_out(finding)
    span = row(finding, "self")
    if base(finding) == "_native_multi_head_attention" and is_nan(finding) and row(finding, "mask") == (-INF, -INF):
        return Explanation(
            "the attention over keys of which the mask leaves none takes the softmax of a row that is all -Inf: its "
            "maximum is subtracted, and -Inf - (-Inf) is NaN",
            _WHY,
            OPERATION,
        )
    if base(finding) not in _SOFTMAXES or not is_nan(finding) or span != (-INF, -INF):
        return None
    name = operand_source(finding, "self")
    return Explanation(
        f"{operator_text(finding)} over a row{f' of {name}' if name else ''} that is all -Inf subtracts its maximum, and -Inf - (-Inf) is NaN",
        _WHY,
        OPERATION,
    )


def _attention(finding: Finding) -> Explanation | None:
    span, name = row(finding, "attn_mask"), operand_source(finding, "attn_mask")
    if not is_nan(finding) or span is None or span[0] != -INF:
        return None
    return Explanation(
        f"{operator_text(finding)} takes the softmax of scores that {name} makes -Inf: where a row is all -Inf it subtracts its "
        "maximum, and -Inf - (-Inf) is NaN",
        "Most often every place of the row is masked, by a sequence of padding only, or by a causal and a padding mask together.",
        OPERATION,
    )


def _written_out(finding: Finding) -> Explanation | None:
    """Where a softmax, its logarithm or a logsumexp subtracts the maximum in an operation of its own."""
    found = expressions(finding)
    if found is None or finding.phase == "backward" or {value(finding, n) for n in ("self", "other")} != {-INF}:
        return None
    scores, most = (found.argument_term(found.middle, name) for name in ("self", "other"))
    if scores is None or most is None or not fits("max(x)", most, x=scores):
        return None
    after = downstream(found)
    structures = {name: f"{name}(x) ** A * ... | A * {name}(x) + ..." for name in _WRITTEN}
    name = next((name for name, structure in structures.items() if fits(structure, *after, x=scores)), None)
    if name is None:
        return None
    return Explanation(
        f"{name} over a row that is all -Inf subtracts its maximum, and -Inf - (-Inf) is NaN", _WHY, STRUCTURE
    )


RULE = Rule(
    "WN501",
    "softmax-all-masked",
    match,
    torch="all; not in the scaled_dot_product_attention of 2.13, which gives 0 for such a row",
    fixes=MASKED,
)
