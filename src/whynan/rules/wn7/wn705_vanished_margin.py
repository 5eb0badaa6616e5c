"""WN705 vanished-margin: a bound just below 1 that the dtype rounds to 1.

What it is
    clamp(p, eps, 1 - eps) before log(1 - p), logit, atanh or acos, with an eps of less than half the distance below 1.

Why it breaks
    The bound is 1 in that dtype, so the clamp changes nothing at 1, where the function has a pole.

Example
    Bad::

        p = torch.tensor([0.5, 1.0]).clamp(1e-8, 1 - 1e-8)
        y = torch.log(1 - p)

    Good::

        p = torch.tensor([0.5, 1.0]).clamp(1e-6, 1 - 1e-6)
        y = torch.log(1 - p)

Fix
    Take 1 - 1e-6 for float32, 1 - 1e-3 for float16 and 1 - 8e-3 for bfloat16, or compute from the logits.

When it is fine
    Never: it does not do what it is there for.

References
    torch.finfo, eps.
"""

from __future__ import annotations

from typing import Final

from whynan.errors import UsageError
from whynan.expr import Expressions
from whynan.floats import format_of
from whynan.ops.table import TORCH
from whynan.records import Argument, Finding, Operation
from whynan.rules.base import GUARD, Explanation, Rule
from whynan.rules.expressions import expressions
from whynan.rules.facts import base, forward_base, forward_is_zero, forward_value, is_zero, number_text, result, value
from whynan.rules.intents import BELOW_ONE, LOG, epsilon, reformulation

_AT_ZERO: Final = {name: TORCH.poles[name][0] for name in TORCH.having("WN705-zero")}
"""What has a pole at 0, as of 1 - p, and the operand that is 0 there."""


def match(finding: Finding) -> Explanation | None:
    backward, found = finding.phase == "backward", expressions(finding)
    name = forward_base(finding) if backward else base(finding)
    if found is None or not _is_pole(finding, name, backward=backward):
        return None
    by = _AT_ZERO.get(name, "self")
    at = forward_value(finding, by) if backward else value(finding, by)
    vanished = None if at is None else _vanished(found, by, at)
    if at is None or vanished is None:
        return None
    margin, dtype = vanished
    pole = (
        f"the derivative of {name} is infinite at {number_text(at)}"
        if backward
        else f"{_spelled(name, at)} is {result(finding)}"
    )
    return Explanation(
        f"{pole}: a bound of 1 - {number_text(margin)} is 1 in {dtype}",
        f"{dtype} has no number between 1 - {number_text(format_of(dtype).eps / 2)} and 1, and a bound closer to 1 rounds to it: the "
        "clamp changes nothing. Take a wider margin, or compute from the logits.",
        GUARD,
    )


def _is_pole(finding: Finding, name: str, *, backward: bool) -> bool:
    if name in _AT_ZERO:
        return forward_is_zero(finding, _AT_ZERO[name]) if backward else is_zero(finding, _AT_ZERO[name])
    at = forward_value(finding, "self") if backward else value(finding, "self")
    return name in TORCH.having("WN705-one") and at is not None and abs(at) == 1


def _spelled(name: str, at: float) -> str:
    return "a division by 0" if name in ("div", "reciprocal") else f"{name}({number_text(at)})"


def _vanished(found: Expressions, by: str, at: float) -> tuple[float, str] | None:
    """The margin that was rounded away on the way to an operand with this value, and the dtype that did it."""
    given, middle = found.recorded_argument(found.middle, by), found.operations.get(found.middle)
    own = (
        found.numeric_argument(middle, "eps") if middle is not None and found.operator_name(middle) == "logit" else None
    )
    if own is not None and given is not None:
        return _rounded(own, given)
    for operation in found.producers(found.middle, by):
        given = found.recorded_argument(operation.event, "self", "input")
        if found.operator_name(operation) == "clamp" or found.operator_name(operation).startswith("clamp_m"):
            bound = found.numeric_argument(operation, "max" if at > 0 else "min")
            return None if bound is None or given is None or abs(at) != 1 else _rounded(1 - abs(bound), given)
        before = at if found.is_copy(operation.event) else _before(found, operation, at)
        if before is None:
            return None
        at = before
    return None


def _before(found: Expressions, operation: Operation, at: float) -> float | None:
    """The operand of a sum with a number, or of a negation, by its result."""
    name, number = found.operator_name(operation), found.numeric_argument(operation, "other")
    if name == "neg":
        return -at
    if number is None or name not in ("add", "sub", "rsub"):
        return None
    return number - at if name == "rsub" else at - number if name == "add" else at + number


def _rounded(margin: float, given: Argument) -> tuple[float, str] | None:
    return (margin, given.dtype) if given.dtype is not None and _rounds_away(margin, given.dtype) else None


def _rounds_away(margin: float, dtype: str) -> bool:
    """Whether 1 less the margin is 1: half of the distance to the next number below 1, and less."""
    try:
        return 0 < margin <= format_of(dtype).eps / 4
    except UsageError:
        return False


RULE = Rule(
    "WN705",
    "vanished-margin",
    match,
    fixes=(
        *(
            reformulation("the bound in double", pattern.format("x"), f"type_as({pattern.format('double(x)')}, x)")
            for pattern in (
                "log(1 - clamp({}, min=a, max=b))",
                "logit(clamp({}, min=a, max=b))",
                "atanh(clamp({}, min=a, max=b))",
                "acos(clamp({}, min=a, max=b))",
                "asin(clamp({}, min=a, max=b))",
            )
        ),
        epsilon("the bound next to 1", "clamp(x, min=a, max=b)", f"clamp(x, min=a, max={BELOW_ONE})"),
        *LOG,
    ),
)
