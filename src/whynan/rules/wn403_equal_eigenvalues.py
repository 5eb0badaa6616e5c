"""WN403 equal-eigenvalues: the derivative of eigenvectors where two eigenvalues are equal.

What it is
    The backward of an eigen- or singular value decomposition divides by the differences of the eigenvalues.

Why it breaks
    Two equal eigenvalues have no eigenvectors of their own: any rotation of them will do, and the derivative has a pole.

Example
    Bad::

        values, vectors = torch.linalg.eigh(covariance)
        loss = vectors[:, 0].sum()

    Good::

        values = torch.linalg.eigvalsh(covariance)
        loss = values.sum()

Fix
    Let the loss depend on eigenvalues alone, or on what does not change when equal ones are rotated; or break the tie.

When it is fine
    Where no gradient flows through the vectors.

References
    torch.linalg.eigh and torch.linalg.svd, the warnings on gradients; Ionescu et al., arXiv 1509.07838.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, forward_base, is_zero

if TYPE_CHECKING:
    from whynan.records import Finding


_DECOMPOSITIONS = ("_linalg_eigh", "_linalg_svd", "linalg_eigh", "linalg_svd", "linalg_eig", "_linalg_eig")


def match(finding: Finding) -> Explanation | None:
    if finding.phase != "backward" or forward_base(finding) not in _DECOMPOSITIONS:
        return None
    if base(finding) not in ("div", "reciprocal") or not is_zero(
        finding, "other" if base(finding) == "div" else "self"
    ):
        return None
    what = "singular values" if "svd" in forward_base(finding) else "eigenvalues"
    return Explanation(
        f"the derivative of the vectors divides by the difference of two {what}, which is 0 here",
        f"Equal {what} have no vectors of their own: any rotation of them will do, and the derivative has a pole.",
        4,
    )


RULE = Rule("WN403", "equal-eigenvalues", match)
