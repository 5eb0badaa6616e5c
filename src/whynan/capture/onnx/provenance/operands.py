"""Decisive operands of an output element, and engines that compute float16 in float32."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.onnx.counts import dtype_name, finite_range, is_array, is_floating, number, value_at
from whynan.capture.onnx.execution import attribute, numbers_of, operand_names
from whynan.capture.provenance.dependence import broadcast_index
from whynan.ops.table import ONNX
from whynan.records import Element, Operand

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whynan.capture.onnx.counts import Mask
    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.graph.sites import Places
    from whynan.capture.onnx.provenance.body_scopes import Scopes, ValueWriter
    from whynan.records import BirthKind
    from whynan.records.base import Number


# -- The operands of one output element: which elements they are, and their values -------------------------------------


Index = tuple[int, ...]
Where = tuple["Index | None", "Tensor | None"]
"""One element of an operand, or the part of it that an output element depends on."""


def element_operands(node: Node, inputs: Sequence[Value], index: Index | None) -> tuple[Operand, ...]:
    """Each operand of an output element; for a reduction the decisive element with its row's range."""
    found: list[Operand] = []
    for position, (name, value) in enumerate(zip(operand_names(node), inputs, strict=False)):
        if is_array(value) and not isinstance(value, list):
            found.append(_operand(node, inputs, position, name, np.asarray(value), index))
        elif isinstance(value, list):
            found.append(Operand(name=name, shape=(len(value),), origin="live"))
    found += [Operand(name=name, value=value, origin="live") for name, value in numbers_of(node).items()]
    return tuple(found)


def _operand(
    node: Node, inputs: Sequence[Value], position: int, name: str, tensor: Tensor, index: Index | None
) -> Operand:
    known: dict[str, Any] = {
        "name": name,
        "shape": tuple(int(s) for s in tensor.shape),
        "dtype": dtype_name(tensor.dtype),
        "origin": "live",
    }
    if index is None:
        return Operand(**known)
    place, region = locate(node, inputs, position, index)
    if region is not None:
        low, high = finite_range(region)
        return Operand(**known, value=decisive_value(region), min=low, max=high)
    return Operand(**known) if place is None else Operand(**known, index=place, value=value_at(tensor, place))


def decisive_value(region: Tensor) -> Number | bool | str | None:
    """The element of a row that decides: the greatest in absolute value, a NaN before all."""
    if not region.size or region.dtype.kind == "b":
        return None
    flat = region.reshape(-1)
    if region.dtype.kind != "c" and is_floating(region):
        flat = flat.astype(np.float64)
    elif flat.dtype.kind == "V":
        flat = flat.astype(np.int64)
    return number(flat[int(np.argmax(np.abs(flat)))])


def locate(node: Node, inputs: Sequence[Value], position: int, index: Index) -> Where:
    """The operand element (or the part of it) that an output element depends on."""
    tensor = np.asarray(inputs[position])
    if tensor.ndim == 0:
        return (), None
    op = node.op
    found: Where | None = None
    if op in ONNX.having("pointwise"):
        place = broadcast_index(tensor.shape, index)
        return (place, None) if place is not None else (None, tensor)
    if op in ONNX.having("product"):
        found = _product(node, position, tensor, index)
    elif op in ONNX.having("reduction") and position == 0:
        found = None, _reduced(node, inputs, tensor, index)
    elif op in ONNX.having("row") and position == 0:
        found = _row(node, inputs, tensor, index)
    elif op in ONNX.having("convolution"):
        found = _convolution(node, inputs, position, tensor, index)
    elif op in ONNX.having("pool") and position == 0 and len(index) > 2:
        sizes = attribute(node, "kernel_shape") or [1] * (tensor.ndim - 2)
        found = None, tensor[(index[0], index[1], *window(node, tensor.shape[2:], sizes, index[2:]))]
    elif op in ONNX.having("global-pool") and len(index) > 1:
        found = (None, tensor[index[:2]]) if position == 0 else ((index[1],), None)
    elif op == "BatchNormalization" and len(index) > 1:
        # by channel, each element from its own
        found = (index, None) if position == 0 else ((index[1],), None)
    elif op in ONNX.having("scale") and position == 0:
        found = index, None
    elif op in ONNX.having("scale") and tensor.ndim == 1 and tensor.size > 1 and index:
        # a scale for each place along an axis
        axis = int(attribute(node, "axis", 1)) % len(index)
        found = ((index[axis],), None) if index[axis] < tensor.size else None
    elif op in ONNX.having("row-norm") and tensor.ndim == len(index):
        axis = int(attribute(node, "axis", -1)) % len(index)
        found = None, tensor[index[:axis]]
    if found is not None:
        return found
    return ((0,) * tensor.ndim, None) if tensor.size == 1 else (None, tensor)


def _product(node: Node, position: int, tensor: Tensor, index: Index) -> Where:
    """The row of the first factor, the column of the second; what is added is met by broadcasting."""
    if position > 1:
        place = broadcast_index(tensor.shape, index)
        return (place, None) if place is not None else (None, tensor)
    turned = bool(attribute(node, "transA" if position == 0 else "transB", 0))
    if tensor.ndim == 1:
        return None, tensor
    if not index or (tensor.ndim > len(index) + 1):
        return None, tensor
    # a vector as the other factor leaves no dimension of its own
    place = list(index)
    alone = tensor.ndim == len(place) + 1
    kept = place[-2] if not alone and position == 0 and len(place) > 1 else place[-1]
    batch = tuple(place[:-1] if alone else place[:-2])
    outer = broadcast_index(tensor.shape[:-2], batch)
    if outer is None:
        return None, tensor
    by_row = (position == 0) != turned
    matrix = tensor[outer]
    size = matrix.shape[0] if by_row else matrix.shape[1]
    if kept >= size:
        return None, tensor
    return None, matrix[kept] if by_row else matrix[:, kept]


def _axes(node: Node, inputs: Sequence[Value], rank: int) -> list[int] | None:
    given: Any = attribute(node, "axes")
    if given is None and len(inputs) > 1 and inputs[1] is not None:
        given = np.asarray(inputs[1]).reshape(-1).tolist()
    if given is None and node.op in ("ArgMax", "ArgMin"):
        given = [attribute(node, "axis", 0)]
    if not given:
        return [] if attribute(node, "noop_with_empty_axes", 0) else None
    return [int(axis) % rank for axis in given]


def _reduced(node: Node, inputs: Sequence[Value], tensor: Tensor, index: Index) -> Tensor:
    axes = _axes(node, inputs, tensor.ndim)
    if axes is None:
        return tensor
    swept = set(axes)
    if len(index) == tensor.ndim:
        return tensor[tuple(slice(None) if d in swept else i for d, i in enumerate(index))]
    kept = [d for d in range(tensor.ndim) if d not in swept]
    if len(index) != len(kept):
        return tensor
    where: list[int | slice] = [slice(None)] * tensor.ndim
    for axis, i in zip(kept, index, strict=True):
        where[axis] = i
    return tensor[tuple(where)]


def _row(node: Node, inputs: Sequence[Value], tensor: Tensor, index: Index) -> Where:
    if len(index) != tensor.ndim:
        return None, tensor
    if node.op in ("CumSum", "CumProd") and len(inputs) > 1 and inputs[1] is not None:
        axis = int(np.asarray(inputs[1]).reshape(-1)[0])
    else:
        early = node.opset is not None and node.opset < 13 and "oftmax" in node.op
        if early:
            # the axes from this one on were one row
            return None, tensor[index[: int(attribute(node, "axis", 1)) % tensor.ndim]]
        axis = int(attribute(node, "axis", -1))
    axis %= tensor.ndim
    return None, tensor[tuple(slice(None) if d == axis else i for d, i in enumerate(index))]


def _convolution(node: Node, inputs: Sequence[Value], position: int, tensor: Tensor, index: Index) -> Where | None:
    if len(index) < 3:
        return None
    if position == 1:
        return (None, tensor[index[1]]) if index[1] < tensor.shape[0] else (None, tensor)
    if position == 2:
        return ((index[1],), None) if tensor.ndim == 1 and index[1] < tensor.shape[0] else (None, tensor)
    if position == 3:
        return index, None
    weight = np.asarray(inputs[1])
    groups = max(1, int(attribute(node, "group", 1)))
    size = tensor.shape[1] // groups
    group = index[1] // max(1, weight.shape[0] // groups)
    channels = slice(group * size, (group + 1) * size)
    return None, tensor[(index[0], channels, *window(node, tensor.shape[2:], weight.shape[2:], index[2:]))]


def window(node: Node, sizes: Sequence[int], kernel: Sequence[int], place: Sequence[int]) -> tuple[slice, ...]:
    """For each spatial dimension the elements under the kernel at a place of the output, what is padding left out.

    The whole dimension where the padding is left to be derived (``auto_pad``).
    """
    rank = len(sizes)
    if attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID") or len(kernel) != rank or len(place) != rank:
        return (slice(None),) * rank
    strides: Any = attribute(node, "strides") or [1] * rank
    dilations: Any = attribute(node, "dilations") or [1] * rank
    pads: Any = attribute(node, "pads") or [0] * (2 * rank)
    found: list[slice] = []
    for d in range(rank):
        start = place[d] * strides[d] - pads[d]
        stop = start + (kernel[d] - 1) * dilations[d] + 1
        while start < 0:
            start += dilations[d]
        found.append(slice(min(start, sizes[d]), max(0, min(stop, sizes[d])), dilations[d]))
    return tuple(found)


def kind_of(op: str, value: Number | bool | str | None, operands: tuple[Operand, ...]) -> BirthKind:
    """Overflow, pole or invalid, from the operator and the values of the offending element."""
    if isinstance(value, str) or value is None or value != value:
        return "invalid"
    pole = ONNX.poles.get(op)
    if pole is not None and any(o.name == pole[0] and o.value in pole[1] for o in operands):
        return "pole"
    return "overflow"


def element_of(tensor: Tensor, mask: Mask, index: Index, output: int, operands: tuple[Operand, ...]) -> Element:
    """The element record of the first true place of a mask."""
    value = value_at(tensor, index)
    return Element(
        index=index,
        output=output,
        shape=tuple(int(s) for s in tensor.shape),
        dtype=dtype_name(tensor.dtype),
        value=math.nan if isinstance(value, str) else value,
        count=int(np.count_nonzero(mask)),
        total=int(tensor.size),
        operands=operands,
    )


# -- What an engine computes in float32 though the model is written in float16: whose result is out of range then ------
#
# ONNX Runtime's CPU has few kernels of float16. It puts casts around the nodes, and leaves out those between them: a
# number that float16 has no room for becomes infinite only at the next cast back, which the model does not have.


_HOPS: Final = 6
_NARROW: Final = np.dtype(np.float16)


@dataclass(frozen=True, slots=True)
class Subject:
    """The node that a birth is shown at: what it read, and which element.

    Where it ran before the birth, ``way`` leads from it to the node that bore it, which is left out.
    """

    node: Node
    inputs: Sequence[Value]
    index: Index
    way: tuple[ValueWriter, ...] = ()
    made_of: str | None = None


def before_cast(subject: Subject, output: Tensor, scopes: Scopes, places: Places) -> Subject:
    """The node that a birth is shown at, instead of a cast that the engine has put in.

    It is the first whose result the model's type has no room for, as far back as operands are known; the cast itself
    where they are not.
    """
    cast = subject.node
    if cast.op != "Cast" or output.dtype != _NARROW or not places.is_added(cast):
        return subject
    wide = dtype_name(np.asarray(subject.inputs[0]).dtype)
    found = subject
    for _ in range(_HOPS):
        before = next(_too_large(found, scopes), None)
        if before is None:
            break
        what = "it" if found is subject else "what is made of it"
        made_of = f"{before.node.op} is computed in {wide} here, and {cast.op} {cast.name} rounds {what}"
        found = replace(before, made_of=made_of)
    return found


def _too_large(subject: Subject, scopes: Scopes) -> Iterator[Subject]:
    """The nodes that wrote an operand of an element which the narrow type has no room for."""
    most = float(np.finfo(_NARROW).max)
    places = dict(zip(operand_names(subject.node), subject.node.inputs, strict=False))
    for operand in element_operands(subject.node, subject.inputs, subject.index):
        number = operand.value if isinstance(operand.value, (int, float)) else 0.0
        written = scopes.here.writers.get(places.get(operand.name, ""))
        if (
            operand.index is None
            or not most < abs(number) < np.inf
            or written is None
            or written.node.op in ONNX.having("form")
        ):
            continue
        inputs = [scopes.value(name) if name else None for name in written.node.inputs]
        known = all(value is not None or not name for value, name in zip(inputs, written.node.inputs, strict=True))
        if known and written.node.outputs[0] == places[operand.name]:
            yield Subject(written.node, inputs, operand.index, (written, *subject.way))
