"""WN110 cosine-by-hand: the cosine of a vector of zeros.

What it is
    sum(a b) / (‖a‖ ‖b‖), in whatever spelling, where one of the vectors is 0.

Why it breaks
    The norm of a vector of zeros is 0, and so is the product: 0/0 has no value.

Example
    Bad::

        a, b = torch.zeros(3), torch.ones(3)
        similarity = (a * b).sum() / (a.norm() * b.norm())

    Good::

        a, b = torch.zeros(3), torch.ones(3)
        similarity = torch.nn.functional.cosine_similarity(a, b, dim=0)

Fix
    Use torch.nn.functional.cosine_similarity; in float16 give it an eps of 1e-4 or more.

When it is fine
    Where the quotient is masked, in forward and in backward.

References
    torch.nn.functional.cosine_similarity.
"""

from __future__ import annotations

from typing import Final

from whynan.rules.base import Rule
from whynan.rules.expressions import match_quotient
from whynan.rules.intents import QUOTIENT, epsilon, greatest, reformulation, scaled

_COSINE: Final = " | ".join(
    f"sum(a * b) * ... / {norms}"
    for norms in ("(sum(a ** 2) ** 0.5 * sum(b ** 2) ** 0.5)", "(sum(a ** 2) * sum(b ** 2)) ** 0.5")
)
"""Over the root of each sum, or one root of their product."""
_A: Final = f"({scaled('a')})"
_B: Final = f"({scaled('b')})"
_NORMS: Final = f"vector_norm({_A}, dim=d) * vector_norm({_B}, dim=d)"


RULE = Rule(
    "WN110",
    "cosine-by-hand",
    match_quotient(
        _COSINE,
        "the product of the norms",
        "A vector of zeros has no direction, and no angle to another. torch.nn.functional.cosine_similarity keeps the norms "
        "away from 0.",
    ),
    fixes=(
        *(
            reformulation(
                "both vectors over their largest magnitudes, and 0 where one is 0",
                pattern,
                f"where({_NORMS} == 0, 0, sum({_A} * {_B}, dim=d) / where({_NORMS} == 0, 1, {_NORMS}))",
                first_scale=greatest("a"),
                first=_A,
                second_scale=greatest("b"),
                second=_B,
                norms=_NORMS,
            )
            for pattern in (
                "sum(a * b, d) / (vector_norm(a, 2, d) * vector_norm(b, 2, d))",
                "sum(a * b, d) / (sqrt(sum(a**2, d)) * sqrt(sum(b**2, d)))",
                "sum(a * b, d) / sqrt(sum(a**2, d) * sum(b**2, d))",
            )
        ),
        *QUOTIENT,
        epsilon(
            "cosine_similarity(a, b)",
            "sum(a * b, d) / (vector_norm(a, 2, d) * vector_norm(b, 2, d))",
            "cosine_similarity(a, b, d)",
        ),
    ),
)
