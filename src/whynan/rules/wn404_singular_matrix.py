"""WN404 singular-matrix: a linear system, an inverse or a determinant of a singular matrix.

What it is
    inv_ex, solve_ex, solve_triangular, slogdet, logdet, or the derivative of one of them, of a matrix without
    inverse.

Why it breaks
    The elimination divides by a pivot of 0; the logarithm of a determinant of 0 is -Inf.

Example
    Bad::

        covariance = torch.ones(2, 2)                  # two equal rows
        log_det = torch.logdet(covariance)

    Good::

        covariance = torch.ones(2, 2)
        log_det = torch.logdet(covariance + 1e-3 * torch.eye(2))

Fix
    Add a small multiple of the identity, or use pinv or lstsq.

When it is fine
    Never.

References
    torch.linalg.inv_ex, torch.linalg.slogdet; pytorch #88313.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import all_finite, base, operand, result
from whynan.rules.wording import derivative, readable, row_text

if TYPE_CHECKING:
    from whynan.records import Finding


_SOLVERS = {"linalg_inv_ex": "A", "_linalg_solve_ex": "A", "linalg_solve_triangular": "self", "linalg_lu_solve": "LU"}
_WHY = (
    "The elimination divides by the pivots of the matrix, and one of them is 0 or nearly so. Two equal rows or columns, "
    "or a covariance of fewer samples than features, make a matrix singular."
)


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if not all_finite(finding):
        return None
    if name == "_linalg_slogdet":
        found = operand(finding, "A")
        if found is None or finding.element.value != float("-inf"):
            return None
        return Explanation(
            f"the determinant of {row_text(found)} is 0, and the logarithm of 0 is -Inf", _WHY, OPERATION
        )
    found = operand(finding, _SOLVERS.get(name, ""))
    if found is None:
        return None
    return Explanation(
        f"{readable(name)} of {row_text(found)} gives {result(finding)}{derivative(finding)}: the matrix is singular, or too near to it for "
        f"{finding.element.dtype}",
        _WHY,
        OPERATION,
    )


RULE = Rule("WN404", "singular-matrix", match)
