"""What an engine tells of a model as it runs it: the nodes, the values that they read and wrote, what left the graph.

An engine runs the model and calls an ``Observer``; an observer knows no engine.
"""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from whynan.records.base import Number

Tensor: TypeAlias = "NDArray[Any]"
"""Numbers, in the dtypes of NumPy and of ml_dtypes; strings as objects."""
Value: TypeAlias = "Tensor | list[Any] | None"
"""A tensor, a sequence of values, or an optional that holds nothing."""
NCHWC: Final = "com.microsoft.nchwc"
"""The domain of nodes on values that ONNX Runtime keeps in blocks of channels: N, C / b, H, W, b."""
_UNBATCHED: Final = 9
BATCH: Final = "batch"
"""Stands on the way to a node in a Scan with a batch, as an attribute would, for the element of the batch."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the graph that is executed.

    ``index`` counts the nodes of its graph in the order of execution; ``body`` is the way to a node in a body of
    If, Loop or Scan: for each level the node that holds it, the name of its attribute and the iteration from 0; empty
    in the main graph. ``inputs`` and ``outputs`` are names of values, empty where one is left out.
    """

    index: int
    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    proto: Any
    """The ``onnx.NodeProto`` as executed, which is not to be changed."""
    provider: str | None = None
    body: tuple[tuple[str, str, int], ...] = ()
    opset: int | None = None
    """The version of its domain that the node is of; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What there is in one tensor; ``finite_min`` and ``finite_max`` are None where no element is finite or a number.

    Of a tensor of strings, and of what is no tensor, all counters are 0.
    """

    dtype: str
    """Named as in reports: ``float32``, ``bfloat16``, ``int64``, ``string``."""
    shape: tuple[int, ...]
    n: int
    n_nan: int = 0
    n_posinf: int = 0
    n_neginf: int = 0
    n_zero: int = 0
    n_subnormal: int = 0
    finite_min: Number | None = None
    finite_max: Number | None = None

    @property
    def bad(self) -> int:
        """How many elements are NaN or infinite."""
        return self.n_nan + self.n_posinf + self.n_neginf


class Alone(Protocol):
    """Runs one node by itself, as the engine ran it in the graph, on other values."""

    def __call__(self, node: Node, inputs: Sequence[Value]) -> list[Value]:
        """The outputs; raises ``RuntimeError`` where that cannot be done."""
        ...


class Observer(Protocol):
    """Is told of everything that a run comes to, in the order of execution.

    Arrays are only lent: they are valid during the call, and whoever needs one later copies it.
    """

    def begins(self, nodes: Sequence[Node], alone: Alone) -> None:
        """The run begins: the nodes of the main graph, and what runs one of them, or one of a body, by itself."""
        ...

    def enters(self, name: str, value: Value, kind: Literal["input", "initializer"]) -> None:
        """A value that the graph begins with; each initialiser is told of before the first node that reads it."""
        ...

    def wrote(self, values: Sequence[Value]) -> None:
        """Some nodes have run: what they wrote, all that there is of it at this time; told of node by node next."""
        ...

    def executed(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """A node has run: what it read and wrote, in the order of its names; None where a name is empty.

        The nodes of a body are told of, iteration by iteration, before the node that holds it.
        """
        ...

    def enters_body(self, names: Sequence[str], values: Sequence[Value], carried: Sequence[str]) -> None:
        """An iteration of a body begins: its inputs, and for each the value of the graph around it that it is.

        ``carried`` is empty for what is none, as the number of an iteration.
        """
        ...

    def leaves_body(self, names: Sequence[str], values: Sequence[Value]) -> None:
        """An iteration of a body is over: its outputs by name."""
        ...

    def leaves(self, name: str, value: Value) -> None:
        """An output of the graph."""
        ...


class RunError(Exception):
    """A model that could not be run to its end: what the engine said, and how many nodes had run."""

    def __init__(self, what: str, nodes: int) -> None:
        super().__init__(what)
        self.what = what
        self.nodes = nodes


def is_batched(node: Node) -> bool:
    """Whether a Scan is one of before opset 9, which runs its body for each element of a batch."""
    return node.op == "Scan" and node.opset is not None and node.opset < _UNBATCHED
