"""Where PyTorch itself computes by another formula while a dispatch mode is on, and what is said of it."""

from __future__ import annotations

from functools import cache
from typing import Final

from whynan.records import Note

# (isTensorSubclassLike), 2.13; that of `eig` leaves out the check that the loss does not depend on the vectors' phase.
CHANGED_FORMULAS: Final = frozenset(
    "ProdBackward0 ProdBackward1 MaskedFillBackward0 MaskedFillBackward1 LinalgEigBackward0".split()
)
"""Nodes of the backward whose formula is another while any dispatch mode is on."""
VALUES_NOTE: Final = Note.of("other_values_formula")


@cache
def formula_note(node: str) -> Note:
    """The note of a node's formula."""
    return Note.of("other_gradient_formula", node=node)
