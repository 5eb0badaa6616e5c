"""Where PyTorch itself computes by another formula while a dispatch mode is on, and what is said of it."""

from __future__ import annotations

from typing import Final

# (isTensorSubclassLike), 2.13; that of `eig` leaves out the check that the loss does not depend on the vectors' phase.
CHANGED_FORMULAS: Final = frozenset(
    "ProdBackward0 ProdBackward1 MaskedFillBackward0 MaskedFillBackward1 LinalgEigBackward0".split()
)
"""Nodes of the backward whose formula is another while any dispatch mode is on."""
FORMULA_NOTE: Final = "{}: PyTorch computes this gradient by another formula while it is watched; it can differ without"
VALUES_NOTE: Final = (
    "PyTorch computes eigvalsh, svdvals, cond and the matrix norms by another formula while they are watched; they can "
    "differ without"
)
