"""WN403 equal-eigenvalues: the derivative of eigenvectors where two eigenvalues are equal.

What it is
    The backward of an eigen- or singular value decomposition divides by the differences of the eigenvalues, and
    that of a singular value decomposition by the singular values too.

Why it breaks
    Two equal eigenvalues have no eigenvectors of their own: any rotation of them will do, and the derivative
    has a pole. So has the derivative of the vectors of a singular value of 0.

Example
    Bad::

        covariance = torch.eye(3, requires_grad=True)
        values, vectors = torch.linalg.eigh(covariance)
        vectors[:, 0].sum().backward()

    Good::

        covariance = torch.eye(3, requires_grad=True)
        values = torch.linalg.eigvalsh(covariance)
        values.sum().backward()

Fix
    Let the loss depend on eigenvalues alone, or on what does not change when equal ones are rotated; or break
    the tie.

When it is fine
    Where no gradient flows through the vectors.

References
    torch.linalg.eigh and torch.linalg.svd, the warnings on gradients; Ionescu et al., arXiv 1509.07838.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import DERIVATIVE, Explanation, Rule
from whynan.rules.facts import base, forward_base, is_zero, operand, result
from whynan.rules.intents import epsilon, setting
from whynan.rules.wording import forward_operand_source

_DECOMPOSITIONS = ("_linalg_eigh", "_linalg_svd", "linalg_eig")


def match(finding: Finding) -> Explanation | None:
    of = forward_base(finding)
    if of not in _DECOMPOSITIONS or base(finding) != "div" or not is_zero(finding, "other"):
        return None
    what = "singular values" if of == "_linalg_svd" else "eigenvalues"
    name = forward_operand_source(finding, "A") or forward_operand_source(finding, "self")
    whose = f" of {name}" if name else ""
    divisor = operand(finding, "other")
    if divisor is not None and divisor.shape is not None and len(set(divisor.shape[-2:])) > 1:
        return Explanation(
            f"the derivative of the singular vectors{whose} divides by a singular value that is 0: the gradient is {result(finding)}",
            "The vectors of a singular value of 0 are not determined: any rotation of them will do, and the derivative has a pole.",
            DERIVATIVE,
        )
    return Explanation(
        f"the derivative of the vectors{whose} divides by the difference of two {what}, which is 0: the gradient is {result(finding)}",
        f"Equal {what} have no vectors of their own: any rotation of them will do, and the derivative has a pole.",
        DERIVATIVE,
    )


RULE = Rule(
    "WN403",
    "equal-eigenvalues",
    match,
    also=("WN9",),
    fixes=(
        *(
            epsilon(
                "a small and different number on each element of the diagonal",
                f"{name}(a)",
                f"{name}(a + diag_embed(cumsum(full_like(diagonal(a, 0, -2, -1), 1e-4), -1)))",
            )
            for name in ("eigh", "svd")
        ),
        setting("the vectors without a gradient (detach()), or a formula that does without them"),
    ),
)
