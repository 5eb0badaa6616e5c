"""WN704 vanished-eps: a small constant that the dtype rounds to 0.

What it is
    x + eps, or a clamp at eps, where eps is below half of the dtype's smallest number, as 1e-8 is in float16.

Why it breaks
    Nothing is added: 0 stays 0, and the quotient, the logarithm or the root meets it.

Example
    Bad::

        x = torch.tensor([0.0, 1.0], dtype=torch.float16)
        y = torch.log(x + 1e-8)

    Good::

        x = torch.tensor([0.0, 1.0], dtype=torch.float16)
        y = torch.log(x + 1e-4)

Fix
    Take an eps that the dtype has room for (1e-4 for float16), or compute in float32.

When it is fine
    Never: it does not do what it is there for.

References
    torch.finfo.
"""

from __future__ import annotations

from typing import Final

from whynan.errors import UsageError
from whynan.expr import Expressions
from whynan.floats import format_of
from whynan.records import Finding, Operation
from whynan.rules.base import GUARD, Explanation, Rule
from whynan.rules.expressions import (
    expressions,
    logarithm_message,
    product_message,
    quotient_message,
    root_message,
    zero_times_infinity,
)
from whynan.rules.facts import base, forward_base, forward_is_zero, is_zero, number_text
from whynan.rules.intents import LOG, QUOTIENT, ROOT, epsilon, guard, reformulation

_LOGS: Final = ("log", "log2", "log10")
_ROOTS: Final = ("sqrt", "pow", "float_power")
_QUOTIENTS: Final = {"div": "other", "true_divide": "other", "reciprocal": "self", "rsqrt": "self"}
_ZERO_STAYS: Final = ("sqrt", "abs", "neg")
"""What gives 0 of 0, and of nothing else."""
_BOUNDS: Final = {"add": "other", "clamp": "min", "clamp_min": "min", "maximum": "other"}


def match(finding: Finding) -> Explanation | None:
    backward, found = finding.phase == "backward", expressions(finding)
    name = forward_base(finding) if backward else base(finding)
    if name == "mul" and backward:
        return _in_a_product(finding)
    if found is None or name not in (*_LOGS, *_ROOTS, *_QUOTIENTS) or (name in _ROOTS and not backward):
        return None
    by = _QUOTIENTS.get(name, "self")
    if not (forward_is_zero(finding, by) if backward else is_zero(finding, by)):
        return None
    vanished = _vanished(found, found.middle, by)
    if vanished is None:
        return None
    eps, dtype = vanished
    what = f"what {number_text(eps)} should keep away from 0"
    if name in _LOGS:
        text = logarithm_message(finding, what, "")
    else:
        text = root_message(finding, what) if name in _ROOTS else quotient_message(finding, what)
    return _told(text, eps, dtype)


def _in_a_product(finding: Finding) -> Explanation | None:
    """Of a product with the logarithm of 0, in whose derivative 0 meets the infinity: the constant inside the logarithm."""
    at = zero_times_infinity(finding)
    for name in ("self", "other") if at is not None else ():
        given = at[0].recorded_argument(at[0].middle, name) if at is not None else None
        made = None if given is None or given.event is None or at is None else at[0].operations.get(given.event)
        if at is None or made is None or at[0].operator_name(made) not in _LOGS:
            continue
        if (vanished := _vanished(at[0], made.event, "self")) is not None:
            what = f"a product with the logarithm of what {number_text(vanished[0])} should keep away from 0"
            return _told(product_message(finding, what), *vanished)
    return None


def _told(text: str, eps: float, dtype: str) -> Explanation:
    return Explanation(
        text,
        f"{number_text(eps)} is 0 in {dtype}, whose smallest number is {number_text(format_of(dtype).smallest_subnormal)}: it changes nothing. "
        "Take a constant that the dtype has room for, or compute in float32.",
        GUARD,
    )


def _vanished(found: Expressions, event: int, by: str) -> tuple[float, str] | None:
    """The constant that was rounded to 0 on the way to an operand of an event, and the dtype that did it."""
    for operation in found.producers(event, by):
        eps, given = _constant(found, operation), found.recorded_argument(operation.event, "self", "input")
        if eps is not None and given is not None and given.dtype is not None and _rounds_to_zero(eps, given.dtype):
            return eps, given.dtype
        if not found.is_copy(operation.event) and found.operator_name(operation) not in _ZERO_STAYS:
            return None
    return None


def _constant(found: Expressions, operation: Operation) -> float | None:
    name = _BOUNDS.get(found.operator_name(operation))
    return None if name is None else found.numeric_argument(operation, name)


def _rounds_to_zero(value: float, dtype: str) -> bool:
    try:
        return 0 < abs(value) <= format_of(dtype).smallest_subnormal / 2
    except UsageError:
        return False


RULE = Rule(
    "WN704",
    "vanished-eps",
    match,
    fixes=(
        reformulation("sqrt(x + e) in double", "sqrt(x + e)", "type_as(sqrt(double(x) + e), x)"),
        *(
            guard(
                f"{name}(x + e) in double where the sum is 0",
                f"{name}(x + e)",
                f"where(x + e == 0, type_as({name}(double(detach(x)) + e), x), {name}(where(x + e == 0, 1, x + e)))",
                total="x + e",
            )
            for name in ("log", "rsqrt")
        ),
        *QUOTIENT,
        *LOG,
        *ROOT,
        epsilon("a denominator that the dtype has room for", "a / (b + e)", "a / (b + 1e-3)"),
        epsilon("eps=1e-4", "normalize(x, p, d, eps=e)", "normalize(x, p=p, dim=d, eps=1e-4)"),
        epsilon("eps=1e-4", "cosine_similarity(a, b, d, eps=e)", "cosine_similarity(a, b, dim=d, eps=1e-4)"),
    ),
)
