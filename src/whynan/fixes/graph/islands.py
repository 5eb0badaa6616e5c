"""A few nodes of a float16 graph that compute in float32, because what they compute does not fit into float16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import onnx_ir as ir

from whynan.fixes.graph.building import Builder
from whynan.fixes.graph.editing import Edit, sweep
from whynan.fixes.graph.operators import ELEMENTWISE, MARK, REDUCTIONS
from whynan.fixes.graph.places import anchors, downstream, opset_at
from whynan.fixes.graph.specials import Special

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from whynan.records import Finding

_HOPS: Final = 6
_MOST: Final = 4
"""Islands that are offered."""
_NARROW: Final = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_CONTRACTS: Final = frozenset({"Sqrt", "Div", "Mul", "Log", "Reciprocal", "Softmax", "LogSoftmax", "Tanh", "Sigmoid"})
"""After these a number may fit again."""
_WIDE: Final = ELEMENTWISE | frozenset(REDUCTIONS.values()) | _CONTRACTS | {"MatMul", "Gemm", "ReduceSumSquare"}


def islands(model: onnx.ModelProto, finding: Finding) -> Iterator[Special]:
    """Islands around a birth out of range, the smallest first."""
    if finding.birth != "overflow" or finding.element.dtype not in ("float16", "bfloat16"):
        return
    sizes = [len(found) for found in _around(Edit(model), finding)]
    for number in range(min(len(sizes), _MOST)):
        edit = Edit(model)
        nodes = _around(edit, finding)[number]
        widened = _widened(edit, nodes)
        if widened is not None:
            yield widened


def _around(edit: Edit, finding: Finding) -> list[list[ir.Node]]:
    """The sets of nodes that may be computed in float32 together, each ending where numbers may fit again."""
    found: list[list[ir.Node]] = []
    for anchor in anchors(edit.model, finding)[:1]:
        nodes: list[ir.Node] = []
        for node in downstream(anchor, _HOPS):
            if not _fits(node) or not (node is anchor or _reads(node, nodes)):
                continue
            nodes.append(node)
            if node.op_type in _CONTRACTS and node is not anchor:
                found.append(list(nodes))
        if nodes and (not found or len(found[-1]) < len(nodes)):
            found.append(nodes)
    return found


def _fits(node: ir.Node) -> bool:
    marked = (node.name or "").startswith(MARK)
    return not marked and node.op_type in _WIDE and node.op_type != "Cast" and len(node.outputs) == 1


def _reads(node: ir.Node, nodes: list[ir.Node]) -> bool:
    return any(value is not None and any(value.producer() is one for one in nodes) for value in node.inputs)


def _widened(edit: Edit, nodes: list[ir.Node]) -> Special | None:
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
        again = builder.again(node, inputs)
        wide[id(node.outputs[0])] = made[id(node)] = again
        again_node = again.producer()
        if again_node is not None:
            again_node.metadata_props.update(node.metadata_props)
    given = [node for node in order if _leaves(node, order)]
    narrow = {id(node): builder.cast(made[id(node)], dtype) for node in given}
    return _placed(edit, order, given, narrow, builder, tuple(read))


def _placed(
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
        old, new = node.outputs[0], narrow[id(node)]
        name, kind, shape = old.name, old.type, old.shape
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        old.name = None
        new.name, new.type, new.shape = name, kind, shape
        names.append(name or "")
    told = ", ".join(f"{node.op_type} {node.name}".strip() for node in order)
    sweep(order)
    # a value may be read before the last of the nodes that are widened
    edit.model.graph.sort()
    count = "1 node" if len(order) == 1 else f"{len(order)} nodes"
    title = f"{count} in float32: {told}"
    return Special(title, "reformulation", edit, read, tuple(names), f"- {told} in float16\n+ {told} in float32\n")


def _leaves(node: ir.Node, order: list[ir.Node]) -> bool:
    value = node.outputs[0]
    return value.is_graph_output() or any(all(use.node is not one for one in order) for use in value.uses())
