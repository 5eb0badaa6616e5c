"""WN203 exp-overflow: an exponential beyond the range of its dtype.

What it is
    exp, exp2, expm1, sinh or cosh of a large operand.

Why it breaks
    exp(x) exceeds the float32 maximum above x = 88.7, the float16 maximum above 11.09.

Example
    Bad::

        log_rate = torch.tensor([100.0, 1.0])
        rate = torch.exp(log_rate)

    Good::

        log_rate = torch.tensor([100.0, 1.0])
        rate = torch.exp(log_rate.clamp(max=20.0))

Fix
    Work with the logarithm (softmax, logsumexp, softplus), or bound the exponent.

When it is fine
    Where the Inf is meant, as in 1/(1+exp(-x)) read forward only.

References
    torch.logsumexp; Blanchard, Higham and Higham, IMA J. Numer. Anal. 2021.
"""

from __future__ import annotations

import math

from whynan.expr.structure import fits
from whynan.ops.table import TORCH
from whynan.records import Finding
from whynan.rules.base import DERIVATIVE, OPERATION, Explanation, Rule
from whynan.rules.expressions import expressions
from whynan.rules.facts import (
    base,
    forward_base,
    forward_value,
    has_infinite_operand,
    is_nan,
    limit,
    maximum,
    number_text,
    result,
    value,
)
from whynan.rules.intents import BOUNDED, BOUNDED_EXPONENT
from whynan.rules.wording import derivative, forward_operand_source, named_value_text, operand_source


def match(finding: Finding) -> Explanation | None:
    name, found = base(finding), value(finding, "self")
    if name in TORCH.having("exponential") and found is not None and math.isfinite(found) and not is_nan(finding):
        edge = _edge(name, finding.element.dtype)
        where = derivative(finding) or (f": {text} is too large" if (text := operand_source(finding, "self")) else "")
        return Explanation(
            f"{name}({number_text(found)}) exceeds {limit(finding)} and gives {result(finding)}{where}",
            f"In {finding.element.dtype} the largest operand of {name} is about {edge:.4g}. The logarithm of the result would fit.",
            OPERATION,
        )
    if name == "pow" and (power := _power_of_a_number(finding)) is not None:
        return power
    of, behind = forward_base(finding), forward_value(finding, "self")
    if (
        of in TORCH.having("exponential")
        and behind is not None
        and math.isfinite(behind)
        and has_infinite_operand(finding)
        and not is_nan(finding)
    ):
        return Explanation(
            f"{of}({number_text(behind)}) was Inf in the forward, and its derivative is computed from that{named_value_text(forward_operand_source(finding, 'self'), number_text(behind))}",
            "The derivative of an exponential is made of the forward's own result. It is computed even where that result "
            "was selected away afterwards.",
            DERIVATIVE,
        )
    return None


def _power_of_a_number(finding: Finding) -> Explanation | None:
    """A number that the program writes, raised to a power that is too large: an exponential by another name."""
    number, found = value(finding, "self"), value(finding, "exponent")
    around = expressions(finding)
    if around is None or number is None or found is None or is_nan(finding) or finding.phase == "backward":
        return None
    if not (number > 1 and math.isfinite(found)) or not fits("exp(x)", around.output_term(around.middle)):
        return None
    edge = math.log(maximum(finding.element.dtype) or math.inf) / math.log(number)
    where = f": {text} is too large" if (text := operand_source(finding, "exponent")) else ""
    return Explanation(
        f"{number_text(number)} ** {number_text(found)} exceeds {limit(finding)} and gives {result(finding)}{where}",
        f"In {finding.element.dtype} the largest power of {number_text(number)} is about {edge:.4g}. The logarithm of the result would fit.",
        OPERATION,
    )


def _edge(name: str, dtype: str) -> float:
    """The operand at which an exponential reaches the maximum of a dtype."""
    greatest = math.log(maximum(dtype) or math.inf)
    if name == "exp2":
        return greatest / math.log(2)
    return greatest + math.log(2) if name in ("sinh", "cosh") else greatest


RULE = Rule("WN203", "exp-overflow", match, torch="all", fixes=(*BOUNDED, *BOUNDED_EXPONENT))
