"""WN510 where-trap: the gradient of what was left out of the forward.

What it is
    torch.where, masked_fill, nan_to_num, a clip, an index or a mask of zeros leaves an element of a result out, and at that
    element the derivative of what made it is NaN or infinite.

Why it breaks
    The forward is finite, for the element is not in it. The backward computes the derivative of every element all the
    same, with a gradient of 0 where it was left out; and 0 times Inf, or 0 / 0, is NaN.

Example
    Bad::

        x = torch.tensor([0.0, 4.0], requires_grad=True)
        loss = torch.where(x > 0, torch.sqrt(x), 0.0).sum()
        loss.backward()

    Good::

        x = torch.tensor([0.0, 4.0], requires_grad=True)
        safe = torch.where(x > 0, x, 1.0)
        loss = torch.where(x > 0, torch.sqrt(safe), 0.0).sum()
        loss.backward()

Fix
    Select twice: give the operation a harmless operand where its result is not wanted, and then leave the result out as
    before. Or take the wanted elements by index first, and compute only with them.

When it is fine
    Where no gradient flows through it.

References
    pytorch #52248, #68425, #108618; TensorFlow #38349; the double-where trick in jax's documentation of jnp.where.
"""

from __future__ import annotations

from typing import Final

from whynan.ops.names import base_name
from whynan.ops.table import TORCH
from whynan.records import Finding, Selection
from whynan.records.intents import FixIntent
from whynan.rules.base import SELECTION, Explanation, Rule
from whynan.rules.facts import base, forward_base, number_text, result, value
from whynan.rules.intents import (
    BOUNDED,
    LIMITS,
    LOG_OF_ONE,
    MASKED,
    MASKED_SOFTMAX,
    QUOTIENT,
    ROOT,
    ROOT_ABOVE,
    SCALED_LIMITS,
    guard,
)
from whynan.rules.wording import (
    backward_recurrence,
    derivative,
    forward_operand_source,
    operand_source,
    operands_text,
    operator_text,
    selection_of_finding,
    selection_text,
)

_OPERAND: Final = {"div": "other", "true_divide": "other"}
"""The operand that makes a derivative bad, where it is not the first."""
_HARMLESS: Final = TORCH.column("WN510")
"""Where a function is finite and has a finite derivative."""


def match(finding: Finding) -> Explanation | None:
    found = selection_of_finding(finding)
    if found is None:
        return None
    return Explanation(
        f"{selection_text(found, _what(finding))}; its derivative is computed {_outcome(finding)}",
        f"What is left out of the forward gets a gradient of 0, and 0 times what has no finite derivative is NaN. {_cure(finding, found)}",
        SELECTION,
    )


def _what(finding: Finding) -> str:
    """``log at x = 0``; of what was bad in the forward ``sqrt at x = -1, which is NaN``."""
    if _is_forward(finding):
        return f"{operator_text(finding)} at {operands_text(finding)}, which is {result(finding)}"
    return derivative(finding).removeprefix(" in the derivative of ") or "the result"


def _is_forward(finding: Finding) -> bool:
    return finding.phase != "backward"


def _outcome(finding: Finding) -> str:
    """``all the same: 0 / 0 is NaN``; of what was bad in the forward and saved for it ``from that all the same``."""
    if _is_forward(finding):
        return "all the same" if backward_recurrence(finding) is None else "from that all the same"
    return f"all the same: {_derived(finding)}"


def _derived(finding: Finding) -> str:
    first, second = value(finding, "self"), value(finding, "other")
    sign = {"div": "/", "true_divide": "/", "mul": "×"}.get(base(finding))
    if sign is None or first is None or second is None or first != first or second != second:
        return f"the gradient is {result(finding)}"
    return f"{number_text(first)} {sign} {number_text(second)} is {result(finding)}"


def _cure(finding: Finding, found: Selection) -> str:
    """The double where, in the words of the source where they are known."""
    of, name = (
        (base(finding), operand_source) if _is_forward(finding) else (forward_base(finding), forward_operand_source)
    )
    operand, harmless = name(finding, _OPERAND.get(of, "self")), _HARMLESS.get(of)
    plain = "Give the operation a harmless operand there, before it is computed, and leave its result out as now"
    if base_name(found.op) in TORCH.having("limit"):
        return "Give the operation a harmless operand there, before it is computed, and select the limit behind it."
    # elsewhere the mask has no name, or another one, and others may read the result
    elsewhere = finding.site is None or found.function not in (None, finding.site.function)
    if elsewhere or operand is None or harmless is None or found.mask is None or found.op.split(".")[1] != "where":
        return f"{plain}."
    sides = f"{operand}, {harmless}" if found.side == "self" else f"{harmless}, {operand}"
    return f"{plain}: torch.where({found.mask}, {sides}) in place of {operand}."


_TITLE: Final = "a harmless operand where the result is left out"


def _doubled(name: str, safe: str) -> tuple[FixIntent, ...]:
    """The same selection before a function as after it."""
    call = f"{name}({{}})".format
    replaced = "nan_to_num({}, nan=n, posinf=p, neginf=m)".format
    finite = f"abs({call('x')}) <= finfo(x).max"
    return (
        guard(_TITLE, f"where(c, {call('x')}, y)", f"where(c, {call(f'where(c, x, {safe})')}, y)"),
        guard(_TITLE, f"where(c, y, {call('x')})", f"where(c, y, {call(f'where(c, {safe}, x)')})"),
        guard(_TITLE, f"masked_fill({call('x')}, c, v)", f"masked_fill({call(f'masked_fill(x, c, {safe})')}, c, v)"),
        guard(
            _TITLE,
            replaced(call("x")),
            f"where({finite}, {call(f'where({finite}, x, {safe})')}, {replaced(call('detach(x)'))})",
            finite=finite,
        ),
    )


RULE = Rule(
    "WN510",
    "where-trap",
    match,
    torch="all",
    fixes=(
        *(
            fix
            for name, safe in _HARMLESS.items()
            if name not in ("div", "true_divide", "pow")
            for fix in _doubled(name, safe)
        ),
        guard(
            _TITLE,
            "where(c, a / b, y)",
            "where(c, a / where(c, b, 1), y)",
        ),
        guard(
            _TITLE,
            "where(c, y, a / b)",
            "where(c, y, a / where(c, 1, b))",
        ),
        guard(
            _TITLE,
            "where(c, y, exp(x) - 1)",
            "where(c, y, exp(where(c, 0, x)) - 1)",
        ),
        guard(
            _TITLE,
            "where(c, exp(x) - 1, y)",
            "where(c, exp(where(c, x, 0)) - 1, y)",
        ),
        *MASKED,
        *LOG_OF_ONE,
        *ROOT,
        *ROOT_ABOVE,
        *QUOTIENT,
        *LIMITS,
        *SCALED_LIMITS,
        *MASKED_SOFTMAX,
        *BOUNDED,
    ),
)
