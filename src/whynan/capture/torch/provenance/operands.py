"""Decisive operands of an output element: their indices, values and origins; terms of a sum, entries of a list."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.provenance.dependence import broadcast_index, magnitude_of, operand_by_role
from whynan.capture.torch.event_log import Held
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.shadow_memory import global_block, is_strided
from whynan.ops.table import TORCH
from whynan.records import Element, Operand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from whynan.capture.torch.event_log import Row
    from whynan.capture.torch.operators import Operator
    from whynan.records import BirthKind, Origin


# -- The operands of one output element: which elements they are, their values, and where those were had from ----------


def number(value: Any) -> float | int | bool | str | None:
    """A Python number of a 0-dim tensor's value; a complex one as text."""
    if isinstance(value, complex):
        return f"{value.real:g}{value.imag:+g}j"
    return value


def dtype_name(dtype: Any) -> str:
    """``torch.float32`` -> ``float32``."""
    return str(dtype).removeprefix("torch.")


def unravel(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of an element by its position, row by row."""
    index: list[int] = []
    for size in reversed(shape):
        position, here = divmod(position, size)
        index.append(here)
    return tuple(reversed(index))


def first_index(mask: Tensor) -> tuple[int, ...] | None:
    """The first true element in row-major order."""
    if mask.dim() == 0:
        return () if bool(mask) else None
    flat = mask.reshape(-1)
    if flat.numel() == 0 or not bool(flat.any()):
        return None
    position = int(torch.argmax(flat.to(torch.uint8)))
    return unravel(position, mask.shape)


def value_at(tensor: Tensor, index: tuple[int, ...]) -> float | int | bool | str | None:
    """The value of one element."""
    value = tensor[index] if index else tensor
    if value.is_floating_point() and value.element_size() == 1:
        value = value.float()
    return number(value.item())


def finite_range(region: Tensor) -> tuple[float | None, float | None]:
    """Least and greatest of a region, what is NaN left aside; NaN where it holds nothing else."""
    if region.numel() == 0 or region.dtype.is_complex or region.dtype is torch.bool:
        return None, None
    if region.is_floating_point() and region.element_size() == 1:
        region = region.float()
    if region.dtype in (torch.uint16, torch.uint32, torch.uint64):
        # torch has no least of them
        region = region.long()
    low, high = (end.item() for end in torch.aminmax(region))
    if low != low and (known := region[~torch.isnan(region)]).numel():
        low, high = (end.item() for end in torch.aminmax(known))
    return low, high


def element_operands(
    operator: Operator,
    args: Any,
    kwargs: dict[str, Any],
    index: tuple[int, ...] | None,
    entry: int | None,
    gone: frozenset[int],
    copied: frozenset[int],
) -> tuple[Operand, ...]:
    """Each operand of an output element; for a reduction the decisive element with its row's range.

    `entry` picks the entry of a foreach operator; `gone` holds the ids of tensors that the event overwrote,
    `copied` those of the copies that were taken before it did.
    """
    names = operator.arg_names
    found: list[Operand] = []
    values = [(names[i] if i < len(names) else f"arg{i}", v) for i, v in enumerate(args)]
    values += list(kwargs.items())
    for name, value in values:
        if entry is not None and isinstance(value, (list, tuple)):
            value = value[entry] if entry < len(value) else None
            name = name.removesuffix("s") if operator.name.startswith("aten._fused") else name
        if isinstance(value, torch.Tensor):
            found.append(_tensor_operand(operator, name, value, args, index, gone, copied))
        elif isinstance(value, (list, tuple)):
            for i, part in enumerate(value):
                if isinstance(part, torch.Tensor):
                    found.append(_tensor_operand(operator, f"{name}[{i}]", part, args, index, gone, copied))
        elif (isinstance(value, (float, int)) and not isinstance(value, bool) and name not in ("dim", "alpha")) or (
            name == "alpha" and value != 1
        ):
            found.append(Operand(name=name, value=number(value), origin="live"))
    return tuple(found)


def _tensor_operand(
    operator: Operator,
    name: str,
    tensor: Tensor,
    args: Any,
    index: tuple[int, ...] | None,
    gone: frozenset[int],
    copied: frozenset[int],
) -> Operand:
    dtype = dtype_name(tensor.dtype)
    # torch refuses to tell the shape of a nested tensor
    shape = None if tensor.is_nested else tuple(int(s) for s in tensor.shape)
    if id(tensor) in gone or not is_strided(tensor):
        return Operand(name=name, shape=shape, dtype=dtype)
    origin: Origin = "window" if id(tensor) in copied else "live"
    if index is None:
        return Operand(name=name, shape=shape, dtype=dtype, origin=origin)
    position, region = locate(operator, name, tensor, args, index)
    if region is not None:
        low, high = finite_range(region)
        decisive = _decisive(region)
        return Operand(
            name=name, index=None, value=decisive, dtype=dtype, origin=origin, shape=shape, min=low, max=high
        )
    if position is None:
        return Operand(name=name, shape=shape, dtype=dtype, origin=origin)
    return Operand(name=name, index=position, value=value_at(tensor, position), dtype=dtype, origin=origin, shape=shape)


def _decisive(region: Tensor) -> float | int | bool | str | None:
    """The element of a row that decides: the greatest in absolute value."""
    if region.numel() == 0:
        return None
    flat = region.reshape(-1)
    if flat.is_floating_point() and flat.element_size() == 1:
        flat = flat.float()
    if flat.dtype is torch.bool:
        return None
    return number(flat[int(torch.argmax(flat.abs()))].item())


def locate(
    operator: Operator, name: str, tensor: Tensor, args: Any, index: tuple[int, ...]
) -> tuple[tuple[int, ...] | None, Tensor | None]:
    """The operand element (or the row of it) that an output element depends on."""
    base = operator.base.removesuffix("_") if not operator.base.startswith("_") else operator.base
    if tensor.dim() == 0:
        return (), None
    if operator.pointwise:
        return broadcast_index(tensor.shape, index), None
    if operator.foreach:
        return None, tensor
    if base in TORCH.having("product") or base in ("linear", "matmul"):
        return _product(base, name, tensor, index)
    if base in TORCH.having("row") and name in ("self", "grad_output", "output") and len(args) > 1:
        dims = args[1] if isinstance(args[1], (list, tuple)) else [args[1]]
        if base != "logsumexp" and len(index) == tensor.dim() and isinstance(dims[0], int):
            row = tensor[with_slices(index, dims, tensor.dim())]
            # of a running sum, what was added so far
            return None, row[: index[dims[0] % tensor.dim()] + 1] if base in TORCH.having("running") else row
    if base in TORCH.having("row-derivative") and name in ("grad_output", "output") and len(index) == tensor.dim():
        return None, tensor[with_slices(index, [args[2]], tensor.dim())]
    if base in TORCH.having("reduction") and name == "self":
        return None, _reduced(tensor, args, index)
    if base == "native_batch_norm" and tensor.dim() and len(index) > 1:
        # by channel
        return (None, tensor[:, index[1]]) if name == "input" else ((index[1],), None)
    if base == "native_layer_norm" and name == "input":
        return None, tensor[index[: tensor.dim() - len(args[1])]]
    if base == "_native_multi_head_attention" and name == "mask" and tensor.dim() == 2 and len(index) == 3:
        # of keys, by batch
        return None, tensor[index[0]]
    if operator.movement and interventions.is_floating(tensor) and name in ("self",):
        return _moved(operator, tensor, args, index), None
    if tuple(tensor.shape) == () or tensor.numel() == 1:
        return (0,) * tensor.dim(), None
    return None, tensor


def _product(base: str, name: str, tensor: Tensor, index: tuple[int, ...]) -> tuple[Any, Tensor | None]:
    if base == "dot" or not index:
        return None, tensor
    if base == "linear" and name != "bias":
        return None, tensor[index[:-1]] if name == "input" else tensor[index[-1]] if tensor.dim() == 2 else tensor
    _, left, right = TORCH.roles[base][:3] if base in TORCH.having("product") else ("", "", "")
    if name == left:
        rows = index if right == "vec" else index[:-1]
        return None, tensor[rows]
    if name == right and right != "vec":
        return None, tensor[(*index[:-2], slice(None), index[-1])]
    if name in ("vec", "weight", "other"):
        return None, tensor
    return broadcast_index(tensor.shape, index), None


def place_in_forward(operator: Operator, args: Any, place: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The element of the forward operation that a bad one of its derivative is about.

    One bad gradient of a row makes the derivative of the whole row bad: that one, not the first of the row.
    """
    if operator.base not in TORCH.having("row-derivative") or not place or len(place) != args[0].dim():
        return place
    dim = args[2] % len(place)
    for tensor in args[:2]:
        row = tensor[with_slices(place, [dim], len(place))]
        bad = first_index((row - row) != 0)
        if bad is not None:
            return (*place[:dim], *bad, *place[dim + 1 :])
    return place


def with_slices(index: tuple[int, ...], dims: Any, rank: int) -> tuple[int | slice, ...]:
    """An index with all of the dimensions that are swept."""
    swept = {d % rank for d in dims}
    return tuple(slice(None) if i in swept else v for i, v in enumerate(index))


def _reduced(tensor: Tensor, args: Any, index: tuple[int, ...]) -> Tensor:
    dims: Any = None
    for value in args[1:]:
        if isinstance(value, (list, tuple)) and all(isinstance(d, int) for d in value):
            dims = value
        elif isinstance(value, int) and not isinstance(value, bool) and dims is None:
            dims = [value]
    if not dims or not index:
        return tensor
    rank = tensor.dim()
    swept = {d % rank for d in dims}
    kept = [i for i in range(rank) if i not in swept]
    if len(index) == rank:
        return tensor[with_slices(index, dims, rank)]
    if len(index) != len(kept):
        return tensor
    where: list[int | slice] = [slice(None)] * rank
    for axis, i in zip(kept, index, strict=True):
        where[axis] = i
    return tensor[tuple(where)]


def _moved(operator: Operator, tensor: Tensor, args: Any, index: tuple[int, ...]) -> tuple[int, ...] | None:
    """Run a moving operator on the numbers of the elements, to see which one arrived."""
    numbers = torch.arange(1, tensor.numel() + 1, device=tensor.device).reshape(tensor.shape)
    try:
        with interventions.no_trace():
            moved = interventions.tensors_in(operator.func(*[numbers if a is tensor else a for a in args]))[0]
            position = int(moved[index]) - 1
    except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
        return None
    if position < 0:
        return None
    return unravel(position, tensor.shape)


def kind_of(operator: Operator, value: float | int | str | None, operands: tuple[Operand, ...]) -> BirthKind:
    """Overflow, pole or invalid, from the operator and the values of the offending element."""
    if isinstance(value, str) or value is None or value != value:
        return "invalid"
    base = operator.base.removesuffix("_") if not operator.base.startswith("_") else operator.base
    pole = TORCH.poles.get(base)
    if pole is not None:
        for operand in operands:
            if operand.name == pole[0] and operand.value in pole[1]:
                return "pole"
            if base == "lgamma" and isinstance(operand.value, float) and operand.value <= 0:
                return "pole"
    return "overflow"


def element_of(
    output: Tensor,
    mask: Tensor,
    number_of_output: int,
    list_index: int | None,
    operands: tuple[Operand, ...],
    tensor_name: str | None,
    count: int | None = None,
) -> Element:
    """The element record of the first true place of a mask, which is one of `count` elements."""
    index = first_index(mask)
    value = value_at(output, index) if index is not None else None
    if isinstance(value, str):
        value = math.nan
    return Element(
        index=index,
        output=number_of_output,
        list_index=list_index,
        tensor=tensor_name,
        shape=tuple(int(s) for s in output.shape),
        dtype=dtype_name(output.dtype),
        value=value,
        count=int(mask.sum()) if count is None else count,
        total=output.numel(),
        operands=operands,
    )


def in_whole(element: Element, part: Tensor, whole: Any) -> Element:
    """An element of the part of a ``DTensor`` that lies in this process, with its place in the whole."""
    block = global_block(whole)
    if block is None or element.index is None:
        return element
    here = whole._local_tensor
    if (part.shape, part.stride(), part.storage_offset()) != (here.shape, here.stride(), here.storage_offset()):
        # a view of it, whose indices are others
        return element
    offset, shape = block
    index = tuple(first + place for first, place in zip(offset, element.index, strict=True))
    return element.model_copy(update={"global_index": index, "global_shape": shape})


def from_list(row: Row, held: list[Any], position: tuple[int, ...]) -> tuple[Held, tuple[int, ...]] | None:
    """The entry of the list that ``cat`` or ``stack`` joined, and the element of it that arrived at `position`."""
    entries = held[0]
    if not isinstance(entries, list) or not all(isinstance(h, Held) for h in entries):
        return None
    numbers: list[Tensor] = []
    total = 0
    for entry in entries:
        count = entry.alias.numel()
        numbers.append(torch.arange(total, total + count, device="cpu").reshape(entry.shape))
        total += count
    try:
        with interventions.no_trace():
            joined = row.operator.func(numbers, *held[1:])
        place = int(joined[position])
    except interventions.ANSWERLESS:
        return None
    for entry, number in zip(entries, numbers, strict=True):
        if place < number.numel():
            return entry, unravel(place, number.shape)
        place -= number.numel()
    return None


# -- Which of the operands a birth turns on, by what the operator means ------------------------------------------------


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
