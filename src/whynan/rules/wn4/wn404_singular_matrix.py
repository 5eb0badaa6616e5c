"""WN404 singular-matrix: a linear system, an inverse or a determinant of a singular matrix.

What it is
    inv_ex, solve_ex, solve_triangular, slogdet, logdet, or the derivative of one of them, of a matrix without
    inverse.

Why it breaks
    The elimination divides by a pivot of 0; the logarithm of a determinant of 0 is -Inf, and that of a negative one,
    which rounding can make of a nearly singular covariance, is NaN.

Example
    Bad::

        covariance = torch.ones(2, 2)                  # two equal rows
        log_det = torch.logdet(covariance)

    Good::

        covariance = torch.ones(2, 2)
        log_det = torch.logdet(covariance + 1e-3 * torch.eye(2))

Fix
    torch.linalg.slogdet in place of the logarithm of a determinant, which leaves the range where no pivot does. Of a
    singular matrix: add a small multiple of the identity, or use pinv or lstsq; of a covariance take the logarithm of
    the determinant from its Cholesky factor.

When it is fine
    Never.

References
    torch.linalg.inv_ex, torch.linalg.slogdet; pytorch #88313.
"""

from __future__ import annotations

from typing import Final

from whynan.expr.structure import fits
from whynan.records import Finding, Operand
from whynan.rules.base import OPERATION, STRUCTURE, Explanation, Rule
from whynan.rules.expressions import expressions, logarithm_message, logarithm_of_zero
from whynan.rules.facts import all_finite, base, forward_base, forward_value, number_text, operand, result, value
from whynan.rules.intents import epsilon, guard, reformulation
from whynan.rules.wording import derivative, readable, row_text

_SOLVERS = {"linalg_inv_ex": "A", "_linalg_solve_ex": "A", "linalg_solve_triangular": "self", "linalg_lu_solve": "LU"}
_DETERMINANT: Final = "(det | _linalg_det)(...) | abs((det | _linalg_det)(...))"
"""As exporters write logdet, of its logarithm."""
_WHY = (
    "The elimination divides by the pivots of the matrix, and one of them is 0 or nearly so. Two equal rows or columns, "
    "or a covariance of fewer samples than features, make a matrix singular."
)
_WHY_DETERMINANT = (
    "A determinant is the product of the pivots of the matrix. Of a large one the product leaves the range of the dtype "
    "though no pivot does: torch.linalg.slogdet and torch.logdet add their logarithms. Where a pivot is 0 itself, as "
    "with two equal rows, the matrix is singular, and its logarithm is -Inf."
)
_WHY_NEGATIVE = (
    "Of a matrix that may turn space over, as the weight of a flow, torch.linalg.slogdet gives the logarithm of the "
    "determinant's magnitude as logabsdet. A covariance or a kernel matrix has no negative eigenvalue but by rounding: "
    "a small multiple of the identity added to it keeps it positive definite."
)


def match(finding: Finding) -> Explanation | None:
    if (at := logarithm_of_zero(finding)) is not None and fits(_DETERMINANT, at[1]):
        return Explanation(logarithm_message(finding, "the determinant of the matrix", ""), _WHY_DETERMINANT, STRUCTURE)
    if (least := _steep_determinant(finding)) is not None:
        return Explanation(
            f"the determinant of the matrix is {number_text(least)}, and the derivative of its logarithm is out of range",
            _WHY_DETERMINANT,
            STRUCTURE,
        )
    name = base(finding)
    if not all_finite(finding):
        return None
    if name == "where":
        return _negative(finding)
    if name == "_linalg_slogdet":
        found = operand(finding, "A")
        if found is None or finding.element.value != float("-inf"):
            return None
        return Explanation(f"the determinant of {_matrix(found)} is 0, and the logarithm of 0 is -Inf", _WHY, OPERATION)
    found = operand(finding, _SOLVERS.get(name, ""))
    if found is None:
        return None
    return Explanation(
        f"{readable(name)} of {row_text(found)} gives {result(finding)}{derivative(finding)}: the matrix is singular, or too near to it for "
        f"{finding.element.dtype}",
        _WHY,
        OPERATION,
    )


def _steep_determinant(finding: Finding) -> float | None:
    """The determinant, too small to have a reciprocal, whose logarithm's derivative is born here."""
    found = expressions(finding) if finding.phase == "backward" and forward_base(finding) == "log" else None
    of = None if found is None else found.argument_term(found.middle, "self")
    least = forward_value(finding, "self")
    return least if of is not None and least is not None and fits(_DETERMINANT, of) else None


def _negative(finding: Finding) -> Explanation | None:
    """The logarithm of a determinant below 0, for which torch.logdet chooses NaN."""
    found, sign = operand(finding, "A"), value(finding, "sign")
    if found is None or sign is None or not sign < 0:
        return None
    return Explanation(
        f"the determinant of {_matrix(found)} is negative, and logdet of it is NaN: the logarithm is defined above 0 only",
        _WHY_NEGATIVE,
        OPERATION,
    )


def _matrix(found: Operand) -> str:
    """Its values, by the name that the source gives it; the schema's own letter names nothing of the program."""
    return row_text(found if found.expression else found.model_copy(update={"expression": "the matrix"}))


_JITTER: Final = "diag_embed(full_like(diagonal(a, 0, -2, -1), 1e-3))"


_WHERE: Final = f"where(unsqueeze(unsqueeze(det(a), -1), -1) == 0, {_JITTER}, 0)"


RULE = Rule(
    "WN404",
    "singular-matrix",
    match,
    also=("WN9",),
    fixes=(
        guard(
            "a small number on the diagonal where the determinant is not positive",
            "logdet(a)",
            f"logdet(a + where(unsqueeze(unsqueeze(logdet(a), -1), -1) > finfo(a).min, 0, {_JITTER}))",
        ),
        guard(
            "a small number on the diagonal where the determinant is 0",
            "inv_ex(a)",
            f"inv_ex(a + {_WHERE})",
        ),
        guard(
            "a small number on the diagonal where the determinant is 0",
            "solve_ex(a, b)",
            f"solve_ex(a + {_WHERE}, b)",
        ),
        reformulation("the logarithm of the determinant by those of the pivots", "log(det(a))", "logdet(a)"),
        reformulation(
            "the logarithm of the determinant by those of the pivots", "log(abs(det(a)))", "slogdet(a).logabsdet"
        ),
        *(
            epsilon("a small number on the diagonal", f"{name}(a)", f"{name}(a + {_JITTER})")
            for name in ("logdet", "slogdet", "inv_ex", "qr")
        ),
        epsilon("a small number on the diagonal", "solve_ex(a, b)", f"solve_ex(a + {_JITTER}, b)"),
    ),
)
