"""WN217 cross-entropy-by-hand: y log(p) + (1 - y) log(1 - p) where p is 0 or 1.

What it is
    The cross-entropy of a probability p, in whatever spelling, that is exactly 0 or 1.

Why it breaks
    One of the logarithms is -Inf; times a label of 0 it is NaN.

Example
    Bad::

        p, y = torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.0])
        loss = -(y * p.log() + (1 - y) * (1 - p).log()).mean()

    Good::

        p, y = torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.0])
        loss = torch.nn.functional.binary_cross_entropy(p, y)

Fix
    Use binary_cross_entropy_with_logits on what p was computed from.

When it is fine
    Where p is bounded away from 0 and 1 by more than the dtype resolves.

References
    torch.nn.functional.binary_cross_entropy_with_logits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from whynan.expr.normal import add
from whynan.rules.base import Rule
from whynan.rules.expressions import factors, match_logarithm_product, without_coefficient
from whynan.rules.intents import LOG, LOG1P, guard, reformulation

if TYPE_CHECKING:
    from whynan.expr import Term

    _Weight = tuple[float, list[Term]]
    """A number and factors that a logarithm is multiplied by."""

_NOT: Final = ("bitwise_not", "logical_not", "not")


def _is_one(term: Term) -> bool:
    if term.is_call("where"):
        chosen = [without_coefficient(part) for part in term.arguments[1:]]
        return all(part.is_call("log") for part in chosen) and add(*(part.arguments[0] for part in chosen)).number == 1
    logs: list[tuple[Term, _Weight]] = []
    for part, number in term.parts if term.kind == "sum" and not term.constant else ():
        found = [base for base, power in factors(part) if power == 1 and base.is_call("log")]
        logs += [(log.arguments[0], (number, [base for base, _ in factors(part) if base != log])) for log in found]
    if len(logs) != 2 or add(*(of for of, _ in logs)).number != 1:
        return False
    return _are_complements(logs[0][1], logs[1][1])


def _are_complements(first: _Weight, second: _Weight) -> bool:
    """Whether one weight is y and the other 1 - y, whatever else they have in common: a logit has 1 and -1."""
    (one, these), (other, those) = first, second
    if one * other <= 0:
        return False
    if not these and not those:
        return one != other and math.isclose(abs(one + other), 1, rel_tol=1e-6)
    return any(_falls_as(a, b) for a in these for b in those)


def _falls_as(a: Term, b: Term) -> bool:
    """Whether one falls as the other grows: y and 1 - y, also where both were moved towards the middle."""
    if a.is_call(*_NOT) or b.is_call(*_NOT):
        return b in a.arguments or a in b.arguments
    (rate, of), (other_rate, other) = _slope(a), _slope(b)
    return of == other and rate * other_rate < 0


def _slope(term: Term) -> tuple[float, Term]:
    if term.kind != "sum" or len(term.parts) != 1:
        return 1.0, term
    return term.parts[0][1], term.parts[0][0]


RULE = Rule(
    "WN217",
    "cross-entropy-by-hand",
    match_logarithm_product(
        _is_one,
        "y log(p) + (1 - y) log(1 - p) with p = 0 or p = 1",
        "A probability that rounds to 0 or 1 makes one of the logarithms -Inf. binary_cross_entropy_with_logits takes the "
        "logits, and is finite for all of them; binary_cross_entropy bounds the logarithms.",
    ),
    fixes=(
        reformulation(
            "logsigmoid(x) and logsigmoid(-x) instead of the logarithms of probabilities",
            "y * log(sigmoid(x)) + (1 - y) * log(1 - sigmoid(x))",
            "y * logsigmoid(x) + (1 - y) * logsigmoid(-x)",
        ),
        guard(
            "the logarithm of a small number where p is 0 or 1",
            "y * log(p) + (1 - y) * log(1 - p)",
            "y * log(where(p == 0, finfo(p).tiny, p)) + (1 - y) * log(where(p == 1, finfo(p).eps, 1 - p))",
        ),
        *LOG,
        *LOG1P,
    ),
)
