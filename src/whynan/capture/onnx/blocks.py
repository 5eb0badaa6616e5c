"""Which values of an optimised graph are kept in blocks of channels, and how many channels they really have.

ONNX Runtime's NCHWc layout keeps N, C, H, W as N, C / b, H, W, b, with the channels filled up with zeros. A value
whose channels are filled up is turned back at once, by a node that says how many there are. Where two such values
are computed with, they may be reshaped to the five dimensions that they really have, and back.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onnx import helper, numpy_helper

from whynan.capture.onnx.layout import NCHWC as NCHWC
from whynan.capture.onnx.layout import block_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from whynan.capture.onnx.executable import Executable
    from whynan.capture.onnx.execution import Node
    from whynan.capture.onnx.written import Written

_ELEMENTWISE: Final = frozenset(
    "Add Sub Mul Div Sum Max Min Mean Pow Relu LeakyRelu PRelu Sigmoid Tanh HardSigmoid HardSwish Clip Elu Selu Celu"
    " Softplus Softsign ThresholdedRelu Abs Neg Exp Log Sqrt Erf Gelu QuickGelu Swish Mish Identity Cast".split()
)
"""What leaves its operands in the blocks that they are in; of these ONNX Runtime uses some."""
_SUFFIXES: Final = ("_bn_nchwc", "_mul_nchwc", "_nchwc")
"""What ONNX Runtime calls a convolution in blocks: after its value, as it was before."""
_LARGEST: Final = 16
"""Channels of a block, at most."""
_FLAT: Final = (0, -1, 0, 0)
"""The shape, as Reshape takes it, that puts five dimensions in four again."""


class Blocks:
    """``channels`` of each value in blocks whose number is known; ``aliases``: those that only reorder another value.

    ``five`` are the values in five dimensions, and the size of their blocks; ``unknown`` those in blocks that cannot
    be turned back.
    """

    def __init__(self, graph: Executable, known: Mapping[str, int], written: Written | None = None) -> None:
        """``known``: how many channels a value has that is not in blocks, where a run has told.

        ``written`` is the model before it was optimised: only there it stands how many channels a convolution has
        that is filled up, where the next one takes it as it is.
        """
        self._graph = graph
        self._written = written
        self.aliases: dict[str, str] = {}
        self.five: dict[str, int] = {}
        self._links: dict[str, set[str]] = {}
        blocked: dict[str, Node] = {}
        for node in graph.nodes:
            if self._leaves_blocked(node, blocked):
                blocked |= dict.fromkeys((name for name in node.outputs if name), node)
                self._link(node, blocked)
        found = self._told(known, blocked)
        for name, node in blocked.items():
            if name not in found and (channels := self._channels(node, found)):
                self._spread(name, channels, found)
        self.blocked = frozenset(blocked)
        self.unknown = frozenset(name for name in blocked if name not in found and name not in self.aliases)
        self.channels = {name: found[name] for name in blocked if name in found and name not in self.aliases}

    def laid(self, name: str) -> int:
        """The size of the blocks of a value none of which is filled up, so that nothing need be computed to read it.

        0 where it is not in such blocks.
        """
        channels = self.channels.get(name, 0)
        size = (self.five.get(name) or block_size()) if channels else 0
        return size if size and channels % size == 0 else 0

    def turn(self, name: str, plain: str) -> list[onnx.NodeProto]:
        """The nodes that make of a value in blocks the value that is meant; ``FLAT`` is one of their operands."""
        flat = f"{plain} in four"
        nodes = [helper.make_node("Reshape", [name, FLAT.name], [flat])] if name in self.five else []
        source = flat if nodes else name
        return [
            *nodes,
            helper.make_node("ReorderOutput", [source], [plain], domain=NCHWC, channels=self.channels[name]),
        ]

    def turn_back(self, name: str, plain: str) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        """The nodes that put a value in blocks again, and the constants that they read."""
        if name not in self.five:
            return [helper.make_node("ReorderInput", [plain], [name], domain=NCHWC)], []
        flat, shape = f"{plain} in four", f"{plain} shape"
        nodes = [
            helper.make_node("ReorderInput", [plain], [flat], domain=NCHWC),
            helper.make_node("Reshape", [flat, shape], [name]),
        ]
        return nodes, [helper.make_tensor(shape, 7, [5], [0, -1, 0, 0, self.five[name]])]

    def is_reorder(self, node: Node) -> bool:
        """Whether a node only changes how a value is kept."""
        if node.outputs[0] in self.aliases:
            return True
        if node.domain == NCHWC and node.op == "ReorderOutput":
            return node.inputs[0] in self.channels and not _attribute(node, "channels_last", 0)
        return node.op == "Reshape" and node.outputs[0] in self.channels

    def _leaves_blocked(self, node: Node, found: Mapping[str, Node]) -> bool:
        if node.domain == NCHWC:
            return node.op != "ReorderOutput"
        blocked = [name for name in node.inputs if name in found]
        if not blocked:
            return False
        if node.op == "Reshape":
            return self._reshaped(node)
        if node.op not in _ELEMENTWISE and (node.op != "Concat" or _attribute(node, "axis", 0) != 1):
            return False
        sizes = [self.five[name] for name in blocked if name in self.five]
        self.five |= dict.fromkeys((name for name in node.outputs if name), sizes[0]) if sizes else {}
        return True

    def _reshaped(self, node: Node) -> bool:
        """Whether a Reshape is one between four and five dimensions."""
        constant = self._graph.constants.get(node.inputs[1])
        shape: Sequence[int] = () if constant is None else numpy_helper.to_array(constant).reshape(-1).tolist()
        if node.inputs[0] in self.five:
            return tuple(shape) == _FLAT
        if len(shape) == 5 and tuple(shape[:4]) == _FLAT:
            self.five[node.outputs[0]] = int(shape[4])
            return True
        return False

    def _link(self, node: Node, blocked: Mapping[str, Node]) -> None:
        """Values that have the same channels as each other, as far as a node tells."""
        if node.domain == NCHWC and node.op == "ReorderInput":
            if not _attribute(node, "channels_last", 0):
                self.aliases[node.outputs[0]] = node.inputs[0]
            return
        if node.op == "Concat" or (node.op == "Conv" and not self._is_depthwise(node)):
            return
        operands = [node.inputs[0]] if node.domain == NCHWC else node.inputs
        for name in operands:
            if name in blocked:
                self._links.setdefault(name, set()).add(node.outputs[0])
                self._links.setdefault(node.outputs[0], set()).add(name)

    def _is_depthwise(self, node: Node) -> bool:
        weight = self._graph.constants.get(node.inputs[1])
        return weight is not None and 1 < _attribute(node, "group", 1) == weight.dims[0]

    def _told(self, known: Mapping[str, int], blocked: Mapping[str, Node]) -> dict[str, int]:
        """The channels of what is turned into blocks or out of them again, and of all that has as many."""
        found: dict[str, int] = {}
        for node in self._graph.nodes:
            if node.domain == NCHWC and node.op == "ReorderOutput" and node.inputs[0] in blocked:
                self._spread(node.inputs[0], _attribute(node, "channels", 0), found)
        for name, node in blocked.items():
            if node.op == "ReorderInput" and name not in found and node.inputs[0] in known:
                self._spread(name, known[node.inputs[0]], found)
        return found

    def _spread(self, name: str, channels: int, found: dict[str, int]) -> None:
        waiting = [name] if channels else []
        while waiting:
            here = waiting.pop()
            if here not in found:
                found[here] = channels
                waiting += self._links.get(here, ())

    def _channels(self, node: Node, found: Mapping[str, int]) -> int:
        """The channels of what a node writes, where these are not filled up."""
        if node.op == "Conv":
            weight = self._graph.constants.get(node.inputs[1])
            filled = 0 if weight is None else int(weight.dims[0])
            name = next((node.name.removesuffix(s) for s in _SUFFIXES if node.name.endswith(s)), "")
            meant = self._written.convolved(name) if self._written is not None and name else None
            return meant if meant is not None and filled - _LARGEST < meant <= filled else filled
        if node.op == "Concat":
            parts = [found.get(name, 0) for name in node.inputs]
            return sum(parts) if all(parts) else 0
        return 0


FLAT: Final = helper.make_tensor("/whynan flat", 7, [4], list(_FLAT))
"""The constant that ``turn`` needs."""


def _attribute(node: Node, name: str, default: Any) -> Any:
    return next((a.i for a in node.proto.attribute if a.name == name), default)
