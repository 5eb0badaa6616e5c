"""WN901 failed-cholesky: a factor is used that the Cholesky factorization did not finish.

What it is
    torch.linalg.cholesky_ex gives what it has when it meets a matrix that is not positive definite, and says so in its
    second output, info, which nobody looks at. Its diagonal goes into a logarithm, a root or a quotient, or a system is
    solved with it.

Why it breaks
    Every diagonal element of a Cholesky factor is above 0. From the pivot on at which the factorization stopped the
    diagonal holds what is left of the matrix, which is 0 or below: its logarithm is -Inf or NaN, and a solver divides by it.

Example
    Bad::

        covariance = torch.tensor([[1.0, 1.0], [1.0, 0.5]])
        factor, info = torch.linalg.cholesky_ex(covariance)
        logdet = 2 * factor.diagonal().log().sum()

    Good::

        covariance = torch.tensor([[1.0, 1.0], [1.0, 0.5]]) + torch.eye(2)
        factor = torch.linalg.cholesky(covariance)
        logdet = 2 * factor.diagonal().log().sum()

Fix
    Add jitter to the diagonal, more where info is not 0; compute the factorization in float64; or call
    torch.linalg.cholesky, which raises. Equal rows, and a noise that training has made small, are the usual reasons.

When it is fine
    Where the result is thrown away wherever info is not 0.

References
    torch.linalg.cholesky_ex; GPyTorch's psd_safe_cholesky, which adds jitter until info is 0.
"""

from __future__ import annotations

from typing import Final

from whynan.expr import Expressions
from whynan.expr.structure import fits
from whynan.ops.table import TORCH
from whynan.records import Finding, Operand
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import expressions
from whynan.rules.facts import base, forward_base, forward_value, number_text, operand, result, value
from whynan.rules.intents import epsilon
from whynan.rules.wording import derivative, readable, row_text

_READERS: Final = {**dict.fromkeys(TORCH.having("WN901"), "self"), "div": "other"}
_SOLVERS: Final = {"cholesky_solve": "input2", "linalg_solve_triangular": "self"}
_FACTOR: Final = "A * linalg_cholesky_ex(...)"
_WHY: Final = (
    "A Cholesky factor has a diagonal above 0. cholesky_ex stopped at a pivot that was not, said so in its second output, and left "
    "the rest as it was: the matrix is not positive definite in this dtype. Jitter on its diagonal makes it so."
)


def match(finding: Finding) -> Explanation | None:
    backward = finding.phase == "backward"
    name = forward_base(finding) if backward else base(finding)
    reads = _READERS.get(name)
    found = expressions(finding)
    if found is not None and (factor := operand(finding, _SOLVERS.get(base(finding), ""))) is not None:
        return _solved(finding, factor) if _is_factor(found, factor.name) else None
    if reads is None or found is None:
        return None
    at = forward_value(finding, reads) if backward else value(finding, reads)
    if at is None or not at <= 0 or not _is_diagonal(found, reads):
        return None
    of = f"the derivative of {readable(name)}" if backward else readable(name)
    return Explanation(
        f"{of} reads {number_text(at)} on the diagonal of a Cholesky factor, which has none at or below 0: the factorization failed",
        _WHY,
        STRUCTURE,
    )


def _solved(finding: Finding, factor: Operand) -> Explanation:
    what = row_text(factor if factor.expression else factor.model_copy(update={"expression": "a factor"}))
    return Explanation(
        f"{readable(base(finding))} with {what} of cholesky_ex gives {result(finding)}{derivative(finding)}: the factorization failed, or the "
        f"matrix is too near to a singular one for {finding.element.dtype}",
        _WHY,
        STRUCTURE,
    )


def _is_factor(found: Expressions, name: str) -> bool:
    term = found.argument_term(found.middle, name)
    return term is not None and fits(_FACTOR, term)


def _is_diagonal(found: Expressions, name: str) -> bool:
    """Whether an argument is the diagonal of a Cholesky factor: as many elements as the matrix has rows."""
    given = found.recorded_argument(found.middle, name)
    if given is None or not _is_factor(found, name):
        return False
    matrices = [matrix for operation in found.named("linalg_cholesky_ex") for matrix in operation.arguments]
    return any(matrix.shape is not None and given.shape == matrix.shape[:-1] for matrix in matrices)


RULE = Rule(
    "WN901",
    "failed-cholesky",
    match,
    fixes=(
        epsilon(
            "a small number on the diagonal",
            "cholesky_ex(a)",
            "cholesky_ex(a + diag_embed(full_like(diagonal(a, 0, -2, -1), 1e-3)))",
        ),
    ),
)
