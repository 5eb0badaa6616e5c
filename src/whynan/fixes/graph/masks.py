"""A mask whose number the dtype cannot hold, or that leaves a row nothing: the least finite number instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import onnx_ir as ir

from whynan.fixes.graph.building import Unwritable
from whynan.fixes.graph.editing import Edit
from whynan.fixes.graph.places import anchors
from whynan.fixes.graph.specials import Special
from whynan.fixes.graph.values import constant
from whynan.floats import format_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from whynan.records import Finding

_HOPS: Final = 8
_CARRIES: Final = frozenset(
    "Add Sub Mul Where Cast Expand Unsqueeze Squeeze Reshape Transpose Slice Gather Identity Neg Concat Tile "
    "Softmax LogSoftmax Exp Div ReduceMax Trilu".split()
)
_SUMS: Final = ("Add", "Sub")


def masks(model: onnx.ModelProto, finding: Finding) -> Iterator[Special]:
    """The edit that puts the least number of a dtype, or half of it where it is added, for one beyond the dtype."""
    for number in range(len(list(_beyond(Edit(model), finding)))):
        edit = Edit(model)
        at, position, dtype = list(_beyond(edit, finding))[number]
        try:
            builder = edit.builder(at, finding)
        except Unwritable:
            continue
        limits = format_of(dtype.numpy().name)
        old = at.inputs[position]
        held = None if old is None else constant(old)
        if old is None or held is None:
            continue
        # what is added to a score must leave room for it
        most = limits.max / 2 if _is_added(at) else limits.max
        new = np.clip(np.asarray(held, np.float64), -most, most)
        made = builder.constant(new.astype(held.dtype))
        edit.insert(at, builder)
        made.type = old.type
        at.replace_input_with(position, made)
        told = f"{np.nanmin(new):.6g}" if np.nanmin(np.asarray(held, np.float64)) < 0 else f"{np.nanmax(new):.6g}"
        was = _worst(np.asarray(held, np.float64))
        node = at.name or at.op_type
        yield Special(
            f"{told}, which {limits.name} can hold, instead of {was} at {node}",
            "guard",
            edit,
            tuple(value.name or "" for value in at.inputs if value is not None and value is not made),
            tuple(value.name or "" for value in at.outputs),
            f"- {at.op_type}: {was}\n+ {at.op_type}: {told}\n",
        )


def _worst(held: np.ndarray) -> str:
    flat = held.ravel()
    return f"{flat[int(np.argmax(np.abs(flat)))]:.6g}"


def _is_added(node: ir.Node) -> bool:
    """Whether what a node gives is added to something further on."""
    if node.op_type in _SUMS:
        return True
    return any(use.node.op_type in (*_SUMS, "Mul", "Cast") and _is_added(use.node) for use in node.outputs[0].uses())


def _beyond(edit: Edit, finding: Finding) -> Iterator[tuple[ir.Node, int, ir.DataType]]:
    """Where constants beyond the dtype of the birth are read, from the birth upwards: node, operand, dtype."""
    seen: set[int] = set()
    for anchor in anchors(edit.model, finding):
        front = [(anchor, _dtype(anchor, finding))]
        for _ in range(_HOPS):
            following: list[tuple[ir.Node, ir.DataType]] = []
            for node, dtype in front:
                if id(node) in seen or node.op_type not in _CARRIES:
                    continue
                seen.add(id(node))
                for position, value in enumerate(node.inputs):
                    if value is None:
                        continue
                    held = constant(value)
                    if held is not None:
                        if held.dtype.kind not in "iub" and _is_beyond(held, dtype):
                            yield node, position, dtype
                    elif (maker := value.producer()) is not None:
                        following.append((maker, dtype))
            front = following


def _dtype(anchor: ir.Node, finding: Finding) -> ir.DataType:
    known = anchor.outputs[0].dtype if anchor.outputs else None
    if known is not None and known.is_floating_point():
        return known
    return ir.DataType.FLOAT16 if finding.element.dtype == "float16" else ir.DataType.FLOAT


def _is_beyond(held: np.ndarray, dtype: ir.DataType) -> bool:
    numbers = np.asarray(held, np.float64)
    most = format_of(dtype.numpy().name).max
    return bool(numbers.size and (np.abs(numbers) > most).any() and not np.isnan(numbers).any())
