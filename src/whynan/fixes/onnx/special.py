"""Edits that are no expression: of a mask's constant, or of the dtype that some nodes compute in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx_ir as ir

from whynan.fixes.onnx.build import Builder, Unwritable
from whynan.fixes.onnx.edit import Edit, downstream, finding_nodes, opset_at, remove_dead_nodes, replace_uses
from whynan.fixes.onnx.read import MARK, constant_array
from whynan.floats import format_of
from whynan.ops.table import ONNX

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from whynan.records import Finding
    from whynan.records.intents import FixKind


# -- An edit that is no expression: of a constant, or of the dtype that some nodes compute in --------------------------


@dataclass(frozen=True, slots=True)
class Special:
    """What was edited, what the edited part reads and gives, and how it reads before and after."""

    title: str
    kind: FixKind
    edit: Edit
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    patch: str


# -- A few nodes of a float16 graph that compute in float32, because what they compute does not fit into float16 -------


_HOPS: Final = 6
_MOST: Final = 4
"""Islands that are offered."""
_NARROW: Final = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_WIDE: Final = ONNX.having("wide") | ONNX.column("function").keys()


def islands(model: onnx.ModelProto, finding: Finding) -> Iterator[Special]:
    """Islands around a birth out of range, the smallest first."""
    if finding.birth != "overflow" or finding.element.dtype not in ("float16", "bfloat16"):
        return
    sizes = [len(found) for found in _float32_islands(Edit(model), finding)]
    for number in range(min(len(sizes), _MOST)):
        edit = Edit(model)
        nodes = _float32_islands(edit, finding)[number]
        widened = _cast_to_float32(edit, nodes)
        if widened is not None:
            yield widened


def _float32_islands(edit: Edit, finding: Finding) -> list[list[ir.Node]]:
    """The sets of nodes that may be computed in float32 together, each ending where numbers may fit again."""
    found: list[list[ir.Node]] = []
    for anchor in finding_nodes(edit.model, finding)[:1]:
        nodes: list[ir.Node] = []
        for node in downstream(anchor, _HOPS):
            if not _can_run_in_float32(node) or not (node is anchor or _reads(node, nodes)):
                continue
            nodes.append(node)
            if node.op_type in ONNX.having("contracting") and node is not anchor:
                found.append(list(nodes))
        if nodes and (not found or len(found[-1]) < len(nodes)):
            found.append(nodes)
    return found


def _can_run_in_float32(node: ir.Node) -> bool:
    marked = (node.name or "").startswith(MARK)
    return not marked and node.op_type in _WIDE and node.op_type != "Cast" and len(node.outputs) == 1


def _reads(node: ir.Node, nodes: list[ir.Node]) -> bool:
    return any(value is not None and any(value.producer() is one for one in nodes) for value in node.inputs)


def _cast_to_float32(edit: Edit, nodes: list[ir.Node]) -> Special | None:
    """The edit that puts casts around nodes."""
    dtype = nodes[0].outputs[0].dtype
    if dtype is None or dtype not in _NARROW:
        return None
    order = [node for node in nodes[0].graph or () if any(node is one for one in nodes)]
    builder = Builder(opset_at(edit.model, order[0]), ir.DataType.FLOAT, edit.names)
    wide: dict[int, ir.Value] = {}
    read: list[str] = []
    made: dict[int, ir.Value] = {}
    for node in order:
        inputs: list[ir.Value | None] = []
        for value in node.inputs:
            if value is not None and value.dtype in (*_NARROW, None):
                if id(value) not in wide:
                    wide[id(value)] = builder.cast(value, ir.DataType.FLOAT)
                    read.append(value.name or "")
                value = wide[id(value)]
            inputs.append(value)
        again = builder.clone_node(node, inputs)
        wide[id(node.outputs[0])] = made[id(node)] = again
        again_node = again.producer()
        if again_node is not None:
            again_node.metadata_props.update(node.metadata_props)
    given = [node for node in order if _is_island_output(node, order)]
    narrow = {id(node): builder.cast(made[id(node)], dtype) for node in given}
    return _insert_island(edit, order, given, narrow, builder, tuple(read))


def _insert_island(
    edit: Edit,
    order: list[ir.Node],
    given: list[ir.Node],
    narrow: dict[int, ir.Value],
    builder: Builder,
    read: tuple[str, ...],
) -> Special:
    edit.insert(order[-1], builder)
    names: list[str] = []
    for node in given:
        replace_uses(node.outputs[0], narrow[id(node)])
        names.append(narrow[id(node)].name or "")
    told = ", ".join(f"{node.op_type} {node.name}".strip() for node in order)
    remove_dead_nodes(order)
    # a value may be read before the last of the nodes that are widened
    edit.model.graph.sort()
    count = "1 node" if len(order) == 1 else f"{len(order)} nodes"
    title = f"{count} in float32: {told}"
    return Special(title, "reformulation", edit, read, tuple(names), f"- {told} in float16\n+ {told} in float32\n")


def _is_island_output(node: ir.Node, order: list[ir.Node]) -> bool:
    value = node.outputs[0]
    return value.is_graph_output() or any(all(use.node is not one for one in order) for use in value.uses())


# -- A mask whose number the dtype cannot hold, or that leaves a row nothing: the least finite number instead ----------


_MASK_HOPS: Final = 8
_SUMS: Final = ("Add", "Sub")


def masks(model: onnx.ModelProto, finding: Finding) -> Iterator[Special]:
    """The edit that puts the least number of a dtype, or half of it where it is added, for one beyond the dtype."""
    for number in range(len(list(_out_of_range_constants(Edit(model), finding)))):
        edit = Edit(model)
        at, position, dtype = list(_out_of_range_constants(edit, finding))[number]
        try:
            builder = edit.builder(at, finding)
        except Unwritable:
            continue
        limits = format_of(dtype.numpy().name)
        old = at.inputs[position]
        held = None if old is None else constant_array(old)
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
        was = _largest_text(np.asarray(held, np.float64))
        node = at.name or at.op_type
        yield Special(
            f"{told}, which {limits.name} can hold, instead of {was} at {node}",
            "guard",
            edit,
            tuple(value.name or "" for value in at.inputs if value is not None and value is not made),
            tuple(value.name or "" for value in at.outputs),
            f"- {at.op_type}: {was}\n+ {at.op_type}: {told}\n",
        )


def _largest_text(held: np.ndarray) -> str:
    flat = held.ravel()
    return f"{flat[int(np.argmax(np.abs(flat)))]:.6g}"


def _is_added(node: ir.Node) -> bool:
    """Whether what a node gives is added to something further on."""
    if node.op_type in _SUMS:
        return True
    return any(use.node.op_type in (*_SUMS, "Mul", "Cast") and _is_added(use.node) for use in node.outputs[0].uses())


def _out_of_range_constants(edit: Edit, finding: Finding) -> Iterator[tuple[ir.Node, int, ir.DataType]]:
    """Where constants beyond the dtype of the birth are read, from the birth upwards: node, operand, dtype."""
    seen: set[int] = set()
    for anchor in finding_nodes(edit.model, finding):
        front = [(anchor, _dtype(anchor, finding))]
        for _ in range(_MASK_HOPS):
            following: list[tuple[ir.Node, ir.DataType]] = []
            for node, dtype in front:
                if id(node) in seen or node.op_type not in ONNX.having("mask-carrier"):
                    continue
                seen.add(id(node))
                for position, value in enumerate(node.inputs):
                    if value is None:
                        continue
                    held = constant_array(value)
                    if held is not None:
                        if held.dtype.kind not in "iub" and _is_out_of_range(held, dtype):
                            yield node, position, dtype
                    elif (maker := value.producer()) is not None:
                        following.append((maker, dtype))
            front = following


def _dtype(anchor: ir.Node, finding: Finding) -> ir.DataType:
    known = anchor.outputs[0].dtype if anchor.outputs else None
    if known is not None and known.is_floating_point():
        return known
    return ir.DataType.FLOAT16 if finding.element.dtype == "float16" else ir.DataType.FLOAT


def _is_out_of_range(held: np.ndarray, dtype: ir.DataType) -> bool:
    numbers = np.asarray(held, np.float64)
    most = format_of(dtype.numpy().name).max
    return bool(numbers.size and (np.abs(numbers) > most).any() and not np.isnan(numbers).any())
