"""Which values only hold the elements of others, so that they need not be read to be looked at."""

# pyright: strict

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from whynan.capture.onnx.layout import NCHWC, Moved
from whynan.capture.onnx.levels import SMALL
from whynan.capture.onnx.schemas import attribute
from whynan.capture.onnx.sessions import CPU

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.capture.onnx.blocks import Blocks
    from whynan.capture.onnx.executable import Executable
    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.profile import Kernel

Move: TypeAlias = "Callable[[Sequence[Tensor]], Tensor]"
"""What an operator makes of the elements of its operands."""
_DOMAINS: Final = ("", "ai.onnx")


class Moves:
    """The values of a graph that hold each element of some operands once, and nothing else.

    Only what operators of ONNX Runtime's own write on the CPU, and what is so large that it is not remembered.
    """

    def __init__(self, graph: Executable, kernels: Mapping[int, Kernel], blocks: Blocks) -> None:
        self.graph = graph
        self._blocks = blocks
        # a body is handed what it reads as the engine has it
        kept = {*graph.outputs, *(name for index in graph.holders for name in graph.reads[index])}
        self._found: dict[str, tuple[Move | None, int]] = {}
        for node in graph.nodes:
            kernel = kernels.get(node.index)
            if kernel is not None and kernel.provider == CPU and kernel.bytes > SMALL and node.outputs[0] not in kept:
                self._find(node)
        self.names = frozenset(self._found)
        self._shapes: dict[tuple[int, tuple[tuple[int, ...], ...]], tuple[int, ...]] = {}

    def made(self, node: Node, inputs: Sequence[Value]) -> Value:
        """What a node has made of the values that it read."""
        move, count = self._found[node.outputs[0]]
        given: Any = tuple(inputs[:count])
        if move is None:
            # looked at, a value in blocks of channels is what it is without them
            return given[0]
        shapes = tuple(part.shape for part in given)
        shape = self._shapes.get((node.index, shapes))
        if shape is None:
            shape = self._shapes[node.index, shapes] = _shape(move, shapes)
        value: Any = Moved(given, shape, move)
        return value

    def _find(self, node: Node) -> None:
        if len(node.outputs) != 1 or not any(node.inputs[:1]):
            return
        if node.domain == NCHWC:
            if node.op == "ReorderOutput" and self._blocks.is_reorder(node):
                self._found[node.outputs[0]] = None, 1
        elif node.domain in _DOMAINS and self._is_in_order(node) and (move := self._move(node)) is not None:
            self._found[node.outputs[0]] = move, len(node.inputs) if node.op == "Concat" else 1

    def _is_in_order(self, node: Node) -> bool:
        """Whether a node does to the values as they are looked at what it does to them as they lie."""
        blocked = [name for name in node.inputs if name in self._blocks.blocked]
        if not blocked:
            return node.outputs[0] not in self._blocks.blocked
        filled = [name for name in (*node.inputs, *node.outputs) if not self._blocks.laid(name)]
        return node.op == "Concat" and not filled

    def _move(self, node: Node) -> Move | None:
        if node.op == "Concat":
            axis = int(attribute(node, "axis", 1))
            return lambda parts: np.concatenate(parts, axis)
        if node.op == "Transpose":
            order: list[int] | None = attribute(node, "perm")
            return lambda parts: parts[0].transpose(order)
        if node.op == "Flatten":
            split = int(attribute(node, "axis", 1))
            return lambda parts: parts[0].reshape(math.prod(parts[0].shape[:split]), math.prod(parts[0].shape[split:]))
        if node.op == "Reshape":
            sizes = self._constant(node, 1)
            literal = bool(attribute(node, "allowzero", 0))
            return None if sizes is None else lambda parts: parts[0].reshape(_sizes(parts[0], sizes, literal))
        return self._fewer_or_more(node) if node.op in ("Squeeze", "Unsqueeze") else None

    def _fewer_or_more(self, node: Node) -> Move | None:
        """Dimensions of one element taken away, or put in."""
        given = len(node.inputs) > 1 and bool(node.inputs[1])
        axes: Any = self._constant(node, 1) if given else attribute(node, "axes")
        if given and axes is None:
            return None
        if node.op == "Squeeze":
            return lambda parts: parts[0].squeeze(None if axes is None else tuple(axes))
        if node.op == "Unsqueeze" and axes is not None:
            return lambda parts: np.expand_dims(parts[0], tuple(axes))
        return None

    def _constant(self, node: Node, position: int) -> list[int] | None:
        """The numbers of an operand that stands in the graph, and that no input of the model can replace."""
        name = node.inputs[position] if position < len(node.inputs) else ""
        if name not in self.graph.constants or name in self.graph.inputs:
            return None
        return [int(number) for number in self.graph.array(name).reshape(-1)]


def _shape(move: Move, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of what a move makes, by arrays that take no memory."""
    return move([np.broadcast_to(np.False_, shape) for shape in shapes]).shape


def _sizes(array: Tensor, sizes: Sequence[int], literal: bool) -> list[int]:
    """The shape that a Reshape asks for: of a 0 the size is what it was, unless that is meant."""
    return [array.shape[i] if size == 0 and not literal else size for i, size in enumerate(sizes)]
