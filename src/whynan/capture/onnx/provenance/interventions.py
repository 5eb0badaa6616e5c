"""Asking a node again: which bad operand elements make which output elements bad.

The node has run in its graph, and its result stands; what runs here is the same node by itself, on copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.onnx.counts import is_array, is_floating, map_tensors
from whynan.capture.onnx.execution import attribute, schema_of
from whynan.capture.provenance.dependence import Refused
from whynan.ops.table import ONNX
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whynan.capture.onnx.counts import Key
    from whynan.capture.onnx.execution import Node, SingleNodeRunner, Tensor, Value

MOST: Final = 20_000
"""Nodes that are run again in one trace."""
EVALUATIONS: Final = 2000
"""Nodes that are evaluated in float64."""
TOO_MANY: Final = Note.create("too_many_nodes")


class Experiments:
    """Runs nodes again, so often and no more; `notes` is told when there are too many."""

    def __init__(self, alone: SingleNodeRunner, notes: dict[Note, None]) -> None:
        self._alone = alone
        self._notes = notes
        self._left = MOST
        self._evaluations = EVALUATIONS

    def run(
        self, node: Node, inputs: Sequence[Value], replace: Callable[[Key, Tensor], Tensor] | None = None
    ) -> list[Value]:
        """The outputs of a node on replaced operands; raises ``Refused`` where that cannot be had."""
        if node.op in ONNX.having("random", "control"):
            raise Refused(node.op)
        if self._left <= 0:
            self._notes[TOO_MANY] = None
            raise Refused("too many nodes")
        self._left -= 1
        given = list(inputs) if replace is None else [map_tensors(v, (i,), replace) for i, v in enumerate(inputs)]
        try:
            return self._alone(node, given)
        except Exception as error:
            # whatever an engine can make of values that the graph never gave it
            raise Refused(str(error)) from error

    def exact(self, node: Node, inputs: Sequence[Value], *, outputs: int) -> list[Tensor | None] | None:
        """The outputs of a node as ONNX's reference has them in float64; None where it has none."""
        if self._evaluations <= 0:
            self._notes[Note.create("damage_not_followed", of="nodes")] = None
            return None
        self._evaluations -= 1
        if node.op in ONNX.having("random", "control"):
            return None
        if node.op in ("Cast", "CastLike"):
            # into a floating dtype: the very number
            value = inputs[0]
            return [value] if is_floating(value) and _to_float(node, inputs) and not isinstance(value, list) else None
        schema = schema_of(node)
        if schema is None:
            return None
        try:
            return _reference(node, inputs, schema.since_version)[:outputs]
        except Exception:  # no reference of it, or none in float64: nothing is known
            return None


def _to_float(node: Node, inputs: Sequence[Value]) -> bool:
    if node.op == "CastLike":
        return len(inputs) > 1 and is_floating(inputs[1])
    # of onnx's TensorProto: FLOAT, FLOAT16, DOUBLE, BFLOAT16
    return attribute(node, "to") in (1, 10, 11, 16)


def _reference(node: Node, inputs: Sequence[Value], since: int) -> list[Tensor | None]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    given = {name: value for name, value in zip(node.inputs, inputs, strict=True) if name}
    untyped = {name: onnx.ValueInfoProto(name=name) for name in (*given, *node.outputs) if name}
    graph = onnx.helper.make_graph(
        [proto], "one", [untyped[name] for name in given], [untyped[name] for name in node.outputs if name]
    )
    evaluator: Any = ReferenceEvaluator(graph, opsets={node.domain: node.opset or since})
    with np.errstate(all="ignore"):
        found: Any = evaluator.run(None, given)
    results = iter(found)
    return [_tensor(next(results)) if name else None for name in node.outputs]


def _tensor(value: Any) -> Tensor | None:
    return np.asarray(value) if is_array(value) else None
