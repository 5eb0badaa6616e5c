"""Which values of an optimised graph are kept in blocks of channels, and how many channels they really have.

ONNX Runtime's NCHWc layout keeps N, C, H, W as N, C / b, H, W, b, with the channels filled up with zeros. A value
whose channels are filled up is turned back at once, by a node that says how many there are.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from whynan.capture.onnx.taps import NCHWC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.onnx.executable import Executable
    from whynan.capture.onnx.execution import Node

_UNKNOWN: Final = 0


class Blocks:
    """``channels`` of each value in blocks whose number is known; ``aliases``: those that only reorder another value.

    ``unknown`` are the values in blocks that cannot be turned back.
    """

    def __init__(self, graph: Executable, known: Mapping[str, int]) -> None:
        """``known``: how many channels a value has that is not in blocks, where a run has told."""
        self._graph = graph
        self._known = known
        self._turned = {
            node.inputs[0]: _attribute(node, "channels", _UNKNOWN)
            for node in graph.nodes
            if node.domain == NCHWC and node.op == "ReorderOutput"
        }
        self.aliases: dict[str, str] = {}
        found: dict[str, int] = {}
        for node in graph.nodes:
            if _leaves_blocked(node, found):
                found |= dict.fromkeys((name for name in node.outputs if name), self._channels(node, found))
        self.blocked = frozenset(found)
        self.unknown = frozenset(name for name, channels in found.items() if not channels and name not in self.aliases)
        self.channels = {n: channels for n, channels in found.items() if channels and n not in self.aliases}

    def _channels(self, node: Node, found: Mapping[str, int]) -> int:
        turned = self._turned.get(node.outputs[0], _UNKNOWN)
        if turned:
            return turned
        if node.domain == NCHWC and node.op == "ReorderInput":
            if not _attribute(node, "channels_last", 0):
                self.aliases[node.outputs[0]] = node.inputs[0]
            return self._known.get(node.inputs[0], _UNKNOWN)
        if node.domain == NCHWC and node.op == "Conv":
            weight = self._graph.constants.get(node.inputs[1])
            return int(weight.dims[0]) if weight is not None else _UNKNOWN
        if node.op == "Concat":
            parts = [found.get(name, _UNKNOWN) for name in node.inputs]
            return sum(parts) if all(parts) else _UNKNOWN
        return next((found[name] for name in node.inputs if name in found), _UNKNOWN)


def _leaves_blocked(node: Node, found: Mapping[str, int]) -> bool:
    if node.domain == NCHWC:
        return node.op != "ReorderOutput"
    return any(name in found for name in node.inputs)


def _attribute(node: Node, name: str, default: Any) -> Any:
    return next((a.i for a in node.proto.attribute if a.name == name), default)
