"""A NaN that PyTorch itself writes outside of an operation's domain: no constant of the program's, but a birth.

`torch.logdet` is made of a factorisation, a comparison of the determinant's sign, and a choice of NaN where it is
negative. All of it is one call of the program's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from whynan.capture.torch.operands import at, dtype_name, finite_range
from whynan.capture.torch.planes import nan_mask
from whynan.capture.torch.rows import Held
from whynan.records import Operand

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.attribution import Verdict
    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.labels import Labels
    from whynan.capture.torch.rows import Row


class Determinant(NamedTuple):
    """The factorisation behind a choice by the sign of a determinant: its event, its matrices, and the signs."""

    row: Row
    matrix: Tensor | None
    sign: Tensor | None

    def operands(self, place: tuple[int, ...]) -> tuple[Operand, ...]:
        """The matrix of one element, and the sign of its determinant."""
        found: list[Operand] = []
        if self.matrix is not None and self.matrix.dim() == len(place) + 2:
            low, high = finite_range(self.matrix[place])
            shape = tuple(int(s) for s in self.matrix.shape)
            dtype = dtype_name(self.matrix.dtype)
            found.append(Operand(name="A", dtype=dtype, shape=shape, min=low, max=high, value=high, origin="window"))
        if self.sign is not None and self.sign.dim() == len(place):
            dtype = dtype_name(self.sign.dtype)
            found.append(
                Operand(name="sign", index=place, value=at(self.sign, place), dtype=dtype, shape=(), origin="window")
            )
        return tuple(found)


def determinant_of(context: TraceContext, row: Row, args: Any) -> Determinant | None:
    """The factorisation that a `where` chooses by, if both are of one call."""
    if row.operator.base != "where" or len(args) != 3 or not isinstance(args[0], torch.Tensor):
        return None
    test = context.rows.get(context.rows.writer_of(args[0]))
    sign = _first(context, test) if test is not None and test.site == row.site and test.operator.base == "eq" else None
    made = None if sign is None else context.rows.get(sign.writer)
    if sign is None or made is None or made.site != row.site or made.operator.base != "_linalg_slogdet":
        return None
    matrix = _first(context, made)
    return Determinant(made, None if matrix is None else context.rows.value_of(matrix), context.rows.value_of(sign))


def _first(context: TraceContext, row: Row) -> Held | None:
    kept = context.rows.of(row.ordinal)
    first = kept.held[0] if kept is not None and kept.held else None
    return first if isinstance(first, Held) else None


def born_outside(verdict: Verdict, output: Tensor, labels: Labels) -> Verdict:
    """The verdict with every NaN constant that was chosen as born there."""
    chosen = torch.zeros_like(verdict.born)
    for set_id in labels.present(verdict.carried):
        if labels.is_literal(set_id):
            chosen |= (verdict.carried == set_id) & nan_mask(output)
    verdict.carried = torch.where(chosen, 0, verdict.carried)
    verdict.born = verdict.born | chosen
    return verdict
