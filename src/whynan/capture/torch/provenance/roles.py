"""Roles of operands: which of them a birth turns on, by what the operator means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.capture.provenance.dependence import magnitude_of, operand_by_role
from whynan.ops.table import TORCH

if TYPE_CHECKING:
    from whynan.records import BirthKind, Operand


def decisive_operand(base: str, kind: BirthKind, operands: tuple[Operand, ...]) -> Operand | None:
    """The operand that a birth turns on: the denominator, the radicand, the greatest factor.

    Of an operator that is not known it is the greatest in magnitude where a range was exceeded, else a zero first.
    """
    known = [o for o in operands if o.dtype is not None and isinstance(o.value, (int, float))]
    if not known:
        return None
    plain = base.removesuffix("_").removeprefix("_foreach_")
    if plain in TORCH.having("norm"):
        # what is normalised, unless a parameter is greater where what was normalised overflows with it
        return known[0] if kind != "overflow" else max(known, key=magnitude_of)
    found = operand_by_role(TORCH.roles.get(plain), kind, operands, known)
    if found is not None and found.dtype is not None:
        return found
    zeros = [o for o in known if o.value == 0]
    return zeros[-1] if zeros and kind != "overflow" else max(known, key=magnitude_of)
