"""WN509 temperature-of-zero: softmax of scores that are divided by 0.

What it is
    softmax(scores / t) with t = 0, or so small that the quotient is out of range; gumbel_softmax with tau = 0.

Why it breaks
    The quotients are Inf, or 0/0, and a softmax subtracts the maximum: Inf - Inf is NaN.

Example
    Bad::

        logits = torch.tensor([[1.0, 2.0]])
        p = (logits / 0.0).softmax(-1)

    Good::

        logits = torch.tensor([[1.0, 2.0]])
        p = (logits / 1e-3).softmax(-1)

Fix
    Clamp the temperature to a small number, or take argmax where it is 0.

When it is fine
    Never.

References
    torch.nn.functional.gumbel_softmax.
"""

from __future__ import annotations

from typing import Final

from whynan.expr import Expressions, NormalForm
from whynan.expr.normal import factors
from whynan.expr.structure import fits, sources
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import downstream, expressions, without_coefficient
from whynan.rules.facts import base, excess, number_text, result, value
from whynan.rules.intents import guard, setting
from whynan.rules.wording import exact_attempt

_MEASURED: Final = "(sum | mean | max | min | var | deviations | norm)(...) ** A * ..."
"""What a row is normalised by is no temperature."""


def match(finding: Finding) -> Explanation | None:
    found = expressions(finding)
    name = base(finding)
    if found is None or finding.phase == "backward" or name not in ("div", "true_divide", "reciprocal"):
        return None
    by = "self" if name == "reciprocal" else "other"
    below = value(finding, by)
    if below is None or not (below == 0 or (finding.birth == "overflow" and abs(below) < 1)):
        return None
    if not _is_temperature(found, by):
        return None
    if below == 0:
        above = 1.0 if name == "reciprocal" else value(finding, "self")
        text = f"{number_text(above)} / 0 is {result(finding)}: the temperature of a softmax is 0 here"
    else:
        attempt = exact_attempt(finding)
        if attempt is None:
            return None
        side = excess(attempt.result, finding.element.dtype, shown=False)
        text = f"{attempt.words} {side}: the temperature of a softmax is too small"
    return Explanation(
        text,
        "Towards a temperature of 0 a softmax becomes an argmax, but the quotient has no value there. Keep the temperature away "
        "from 0, or take the argmax.",
        STRUCTURE,
    )


def _is_temperature(found: Expressions, by: str) -> bool:
    """Whether the denominator is one number that all scores of a softmax, or of each of its rows, are divided by."""
    given, below = found.recorded_argument(found.middle, by), found.argument_term(found.middle, by)
    if given is None or below is None or (given.shape is not None and given.shape[-1:] not in ((), (1,))):
        return False
    if fits(_MEASURED, below):
        return False
    scores = "(softmax | log_softmax)(A * x + ...)"
    above = found.argument_term(found.middle, "self") if by == "other" else None
    return fits(scores, *downstream(found), where=lambda softmax: _divides(below, above, softmax.terms["x"]))


def _divides(below: NormalForm, above: NormalForm | None, quotient: NormalForm) -> bool:
    """Whether it is a quotient with this denominator, which is not computed from what it divides."""
    if below.number and above is not None:
        # the number is part of a factor
        return without_coefficient(quotient) in {without_coefficient(part) for part in (above, *above.arguments)}
    parts = factors(quotient)
    divided = [base for base, power in parts if base != without_coefficient(below) or power > 0]
    is_quotient = len(divided) < len(parts) or bool(below.number)
    return is_quotient and bool(divided) and not any(sources(base) & sources(below) for base in divided)


RULE = Rule(
    "WN509",
    "temperature-of-zero",
    match,
    fixes=(
        guard("a temperature of 1 where it is 0", "softmax(x / t, d)", "softmax(x / where(t == 0, 1, t), d)"),
        guard("a temperature of 1e-3 where it is 0", "a / b", "a / where(b == 0, 1e-3, b)", temperature="b"),
        setting("a temperature of at least 1e-3, and argmax in place of 0"),
    ),
)
