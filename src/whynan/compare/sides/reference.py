"""An ONNX model on onnx's reference evaluator, node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from whynan.capture.onnx.arrays import copy_value, engine_message, kind_of
from whynan.compare.sides.onnx import OnnxSide
from whynan.compare.sides.operations import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.compare.sides.operations import Array, Operation
    from whynan.compare.sides.values import ValueStore


class ReferenceSide(OnnxSide):
    """A model whose nodes the reference evaluator runs."""

    def run(self, feeds: Mapping[str, Array], values: ValueStore) -> None:
        """Run it once, and keep every value; raises ``UnavailableError``."""
        run_each(self, feeds, values, self.evaluate)

    def evaluate(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """A node on other operands, on the evaluator."""
        node = self.graph.nodes[operation.index]
        given: dict[str, Any] = {}
        for name in self.graph.reads[node.index]:
            value = operands.get(name)
            given[name] = self.constant(name) if value is None else value
        infos = [onnx.ValueInfoProto(name=name, type=kind_of(value)) for name, value in given.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
        model = onnx.ModelProto(ir_version=self.graph.model.ir_version)
        model.graph.CopyFrom(helper.make_graph([node.proto], "alone", infos, outputs))
        model.opset_import.extend(self.graph.model.opset_import)
        model.functions.extend(self.graph.model.functions)
        evaluator: Any = ReferenceEvaluator(model)
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(copy_value(value)) for value in evaluator.run(None, given)]
        except Exception as error:
            raise UnavailableError(engine_message(error)) from None


def run_each(side: Any, feeds: Mapping[str, Array], values: ValueStore, compute: Any) -> None:
    """Run the operations of a side one by one, and keep every value."""
    alive = dict(feeds)
    for name, value in feeds.items():
        values.keep(name, value)
    last = {name: operation.index for operation in side.operations for name in operation.inputs}
    for operation in side.operations:
        found = compute(operation, {name: alive[name] for name in operation.inputs if name in alive})
        for name, value in zip(operation.outputs, found, strict=False):
            alive[name] = value
            if isinstance(value, np.ndarray):
                values.keep(name, cast("Array", value))
        for name in operation.inputs:
            if last[name] <= operation.index:
                alive.pop(name, None)
