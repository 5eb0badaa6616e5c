"""WN202 log-of-negative: the logarithm of a negative number.

What it is
    log meets a value below 0 (log1p below -1, logit outside of 0 to 1).

Why it breaks
    There is no real logarithm of a negative number: NaN.

Example
    Bad::

        predicted = torch.tensor([-1.5, 2.0])
        y = torch.log(predicted + 1)

    Good::

        predicted = torch.tensor([-1.5, 2.0])
        y = torch.log(predicted.clamp_min(0) + 1)

Fix
    Find out why the operand is negative (a rounding error, an unbounded output) and bound it there.

When it is fine
    Where the NaN is selected away, in backward too.

References
    IEEE 754-2019, 9.2.1.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import all_finite, base, is_nan, number_text, row, value
from whynan.rules.intents import LOG1P, LOG_ABOVE, LOG_BY_ROUNDING
from whynan.rules.wording import derivative, named_value_text, operand_source, operator_text

_LOGS = {"log": 0.0, "log2": 0.0, "log10": 0.0, "log1p": -1.0}


def match(finding: Finding) -> Explanation | None:
    name, found = base(finding), value(finding, "self")
    if not is_nan(finding):
        return None
    if name == "reducelogsum":
        return _of_sum(finding)
    if name in ("xlogy", "logit"):
        return _inside(finding, name)
    if name not in _LOGS or found is None or not found < _LOGS[name]:
        return None
    where = derivative(finding) or named_value_text(
        operand_source(finding, "self"), f"below {number_text(_LOGS[name])}"
    )
    return Explanation(
        f"{name}({number_text(found)}) is NaN{where}",
        f"The real logarithm {name} is defined above {number_text(_LOGS[name])} only.",
        OPERATION,
    )


def _inside(finding: Finding, name: str) -> Explanation | None:
    found = value(finding, "other" if name == "xlogy" else "self")
    if found is None or 0 <= found <= (1 if name == "logit" else found):
        return None
    if name == "xlogy":
        text = f"x × log({number_text(found)}) is NaN{derivative(finding) or named_value_text(operand_source(finding, 'other'), 'negative')}"
    else:
        text = f"logit({number_text(found)}) is NaN{derivative(finding) or named_value_text(operand_source(finding, 'self'), 'outside of 0 to 1')}"
    return Explanation(text, "It takes the logarithm of a negative number, which has no real value.", OPERATION)


def _of_sum(finding: Finding) -> Explanation | None:
    span = row(finding, "self")
    if span is None or not span[1] <= 0 or not all_finite(finding):
        return None
    return Explanation(
        f"{operator_text(finding)} of values from {number_text(span[0])} to {number_text(span[1])} takes the logarithm of their sum, which is negative",
        "The real logarithm is defined above 0 only.",
        OPERATION,
    )


RULE = Rule("WN202", "log-of-negative", match, torch="all", fixes=(*LOG_ABOVE, *LOG_BY_ROUNDING, *LOG1P))
