"""Guards against a small number that write over values which were none: ``x[x <= eps] = eps`` of what is signed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.provenance.dependence import FAR, is_guard, is_worth_reporting
from whynan.capture.torch.event_log import Held
from whynan.capture.torch.shadow_memory import is_readable
from whynan.capture.torch.silent.rounding import LostElements
from whynan.ops.table import TORCH

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.event_log import Operands, Row, Rows
    from whynan.capture.torch.operators import Operator

_HOPS: Final = 4


class MaskComparison(NamedTuple):
    """A comparison that a mask was made by: the tensor, and the constant."""

    tensor: Held
    constant: float


def find_mask_write(
    rows: Rows, operator: Operator, args: Any, _kwargs: Any, output: Tensor, before: dict[int, Tensor] | None
) -> LostElements | None:
    """A mask of what is below a small constant, by which that constant is written."""
    base = operator.base.removesuffix("_")
    mask, choices = _parts(base, args)
    compared = None if mask is None else _compared(rows, mask)
    if compared is None:
        return None
    sources = [before.get(id(args[0]))] if operator.mutable and before else [] if operator.mutable else choices[0]
    for source in sources:
        constant = _constant(choices[1], source)
        if isinstance(source, torch.Tensor) and constant is not None and _same(rows, compared.tensor, source):
            at = next((n for n, a in enumerate(args) if a is source), 0)
            return overwritten_elements(source, output, constant, compared.constant, at)
    return None


def find_mask_sum(
    rows: Rows, _operator: Operator, args: Any, _kwargs: Any, output: Tensor, _before: dict[int, Tensor] | None
) -> LostElements | None:
    """The same as arithmetic: ``x * (x >= eps) + (x < eps) * eps``."""
    if len(args) < 2 or not isinstance(args[0], torch.Tensor) or not isinstance(args[1], torch.Tensor):
        return None
    products = [_product(rows, part) for part in args[:2]]
    for kept, filled in (products, products[::-1]):
        if kept is None or filled is None:
            continue
        constant, chosen = _filling(rows, filled), _chosen(rows, kept)
        if constant is None or chosen is None:
            continue
        compared, source = chosen
        tensor = rows.value_of(source)
        if tensor is not None and _same(rows, compared.tensor, tensor):
            return overwritten_elements(tensor, output, constant, compared.constant, None)
    return None


def overwritten_elements(
    source: Tensor, output: Tensor, constant: float, threshold: float, argument: int | None
) -> LostElements | None:
    """The elements far below a constant that are it now; None where they are few.

    What was far above it was cut off at it, which nobody does to keep away from 0.
    """
    if source.shape != output.shape or not output.is_floating_point() or not is_readable(output):
        return None
    small = max(constant, threshold)
    there = output == torch.tensor(constant, dtype=output.dtype, device=output.device)
    where = there & (source < -FAR * small) & torch.isfinite(source)
    count = int(where.sum())
    if not is_worth_reporting(count, output.numel()):
        return None
    numbers = {"eps": constant, "threshold": threshold, "worst": float(source[where].min())}
    return LostElements("overwritten", where, source, numbers, argument)


def _parts(base: str, args: Any) -> tuple[Tensor | None, tuple[list[Any], list[Any]]]:
    """The mask of an event, what it keeps elements of, and what it writes."""
    if base == "where":
        return (args[0], (list(args[1:3]), list(args[1:3]))) if len(args) == 3 else (None, ([], []))
    if base == "masked_fill":
        return args[1], ([args[0]], [args[2]])
    masks = [m for m in args[1] if m is not None]
    one = masks[0] if len(masks) == 1 and masks[0].dtype is torch.bool else None
    added_to = len(args) > 3 and args[3]
    return None if added_to else one, ([args[0]], [args[2]])


def _constant(choices: list[Any], source: Any) -> float | None:
    """The small positive number that is written, where it is one number."""
    for choice in choices:
        if choice is source:
            continue
        number = choice
        if isinstance(choice, torch.Tensor):
            if not choice.numel() or not choice.is_floating_point() or (choice.numel() > 1 and not _is_uniform(choice)):
                continue
            number = choice.reshape(-1)[0].item()
        if is_guard(number):
            return number
    return None


def _is_uniform(tensor: Tensor) -> bool:
    low, high = torch.aminmax(tensor)
    return bool(low == high)


def _compared(rows: Rows, mask: Tensor | Held) -> MaskComparison | None:
    """The comparison with a small constant that made a mask."""
    writer = mask.writer if isinstance(mask, Held) else rows.writer_of(mask)
    for _ in range(_HOPS):
        row, kept = _event(rows, writer)
        if row is None or kept is None or not isinstance(kept.held[0], Held):
            return None
        if row.operator.base in TORCH.having("ordering"):
            constant = kept.held[1] if len(kept.held) > 1 else None
            return MaskComparison(kept.held[0], constant) if is_guard(constant) else None
        if row.operator.base not in TORCH.having("mask-of-mask"):
            return None
        writer = kept.held[0].writer
    return None


def _event(rows: Rows, writer: int) -> tuple[Row | None, Operands | None]:
    row = rows.get(writer)
    return row, None if row is None else rows.operands_at(writer)


def _product(rows: Rows, part: Tensor) -> list[Any] | None:
    """The operands of the product that a tensor is."""
    row, kept = _event(rows, rows.writer_of(part))
    if row is None or kept is None or row.operator.base != "mul" or len(kept.held) < 2:
        return None
    return kept.held[:2]


def _filling(rows: Rows, factors: list[Any]) -> float | None:
    """The small constant of a product of a mask and it."""
    numbers = [f for f in factors if is_guard(f)]
    masks = [f for f in factors if isinstance(f, Held) and _compared(rows, f) is not None]
    return numbers[0] if numbers and masks else None


def _chosen(rows: Rows, factors: list[Any]) -> tuple[MaskComparison, Held] | None:
    """The comparison, and what is kept by its mask, of a product of both."""
    for mask, kept in (factors, factors[::-1]):
        compared = _compared(rows, mask) if isinstance(mask, Held) and isinstance(kept, Held) else None
        if compared is not None:
            return compared, kept
    return None


def _same(rows: Rows, held: Held, tensor: Tensor) -> bool:
    """Whether what was compared is what is written over: the same elements, or equal ones."""
    alias = held.alias
    if alias.shape != tensor.shape:
        return False
    same = alias.data_ptr() == tensor.data_ptr() and alias.stride() == tensor.stride()
    if same and rows.writer_of(tensor) == held.writer:
        return True
    kept = rows.value_of(held)
    return kept is not None and kept.dtype == tensor.dtype and bool(torch.equal(kept, tensor))
