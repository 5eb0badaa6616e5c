"""What an engine tells of a model as it runs it: nodes, values, schemas, and the outcome of the run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import numpy as np

from whynan.ops.table import ONNX

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx
    from numpy.typing import NDArray

    from whynan.records import Note
    from whynan.records.base import Number


# -- What an engine tells of a model as it runs it: the nodes, the values that they read and wrote, what left the
# graph
#
# An engine runs the model and calls an ``Observer``; an observer knows no engine.


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


class SingleNodeRunner(Protocol):
    """Runs one node by itself, as the engine ran it in the graph, on other values."""

    def __call__(self, node: Node, inputs: Sequence[Value]) -> list[Value]:
        """The outputs; raises ``RuntimeError`` where that cannot be done."""
        ...


class Observer(Protocol):
    """Is told of everything that a run comes to, in the order of execution.

    Arrays are only lent: they are valid during the call, and whoever needs one later copies it.
    """

    def on_begin(self, nodes: Sequence[Node], alone: SingleNodeRunner) -> None:
        """The run begins: the nodes of the main graph, and what runs one of them, or one of a body, by itself."""
        ...

    def on_input(self, name: str, value: Value, kind: Literal["input", "initializer"]) -> None:
        """A value that the graph begins with; each initialiser is told of before the first node that reads it."""
        ...

    def on_values(self, values: Sequence[Value]) -> None:
        """Some nodes have run: what they wrote, all that there is of it at this time; told of node by node next."""
        ...

    def on_node(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """A node has run: what it read and wrote, in the order of its names; None where a name is empty.

        The nodes of a body are told of, iteration by iteration, before the node that holds it.
        """
        ...

    def on_body_enter(self, names: Sequence[str], values: Sequence[Value], carried: Sequence[str]) -> None:
        """An iteration of a body begins: its inputs, and for each the value of the graph around it that it is.

        ``carried`` is empty for what is none, as the number of an iteration.
        """
        ...

    def on_body_leave(self, names: Sequence[str], values: Sequence[Value]) -> None:
        """An iteration of a body is over: its outputs by name."""
        ...

    def on_output(self, name: str, value: Value) -> None:
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


# -- What a run of a model came to -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of a model came to.

    ``bit_equal``: whether the outputs have the bits of those of a bare session; None where that cannot be said, for
    the reason ``why``. ``executed`` is the graph that ran, with its large weights in files that may be gone.
    ``computed`` are the bad constants in it that the file does not have; ``blocked``: some of its values are kept in
    blocks of channels.
    """

    outputs: dict[str, Value]
    bit_equal: bool | None
    why: Note
    nodes: int
    nodes_as_written: int
    segments: int
    placement: dict[str, int]
    notes: tuple[Note, ...]
    executed: onnx.ModelProto
    computed: tuple[str, ...] = ()
    blocked: bool = False


# -- What a node says of itself: its schema, the names of its operands, its attributes ---------------------------------


_OWN_DOMAINS: Final = ("com.microsoft", "com.ms.internal")
"""How the names of ONNX Runtime's domains begin."""


def schema_of(node: Node) -> Any:
    """The schema that a node is of, an ``onnx.defs.OpSchema``; None for an operator that onnx does not know.

    Where the node does not say of which version it is: the latest that has its attributes and room for its operands.
    """
    names = tuple(sorted(a.name for a in node.proto.attribute))
    return _schema(node.op, node.domain, node.opset, names, len(node.inputs))


@lru_cache(maxsize=4096)
def _schema(op: str, domain: str, opset: int | None, attributes: tuple[str, ...], operands: int) -> Any:
    import onnx

    domain = "" if domain == "ai.onnx" else domain
    version = opset or onnx.defs.onnx_opset_version()
    latest: Any = None
    while version > 0:
        try:
            found: Any = onnx.defs.get_schema(op, version, domain)
        except onnx.defs.SchemaError:
            return latest
        if opset is not None:
            return found
        latest = latest or found
        if set(attributes) <= set(found.attributes) and operands <= found.max_input:
            return found
        version = found.since_version - 1
    return latest


def operand_names(node: Node) -> tuple[str, ...]:
    """What the operands of a node are called by its schema; those of a list are numbered."""
    names = _names(node)
    found: list[str] = []
    for i in range(len(node.inputs)):
        if i < len(names) - 1 or (i < len(names) and not names[-1].endswith("*")):
            found.append(names[i])
        elif names and names[-1].endswith("*"):
            found.append(f"{names[-1][:-1]}[{i - len(names) + 1}]")
        else:
            found.append(f"input{i}")
    return tuple(found)


def _names(node: Node) -> list[str]:
    """The formal names; that of a list ends in an asterisk.

    What ONNX Runtime has put in has the names that it says itself, else those of the operator that it stands for.
    """
    schema = schema_of(node) or _ort_schema(node)
    if schema is not None:
        return [f"{p.name}*" if "ariadic" in str(p.option) else str(p.name) for p in schema.inputs]
    if node.domain and not node.domain.startswith(_OWN_DOMAINS):
        return []
    if node.op in ONNX.lists("inputs"):
        return list(ONNX.lists("inputs")[node.op])
    return _names(replace(node, domain="", opset=None)) if node.domain else []


def _ort_schema(node: Node) -> Any:
    """ONNX Runtime's schema of an operator of its own; None for any other, and where it tells of none."""
    known = _contributed().get((node.domain, node.op), {})
    version = max((v for v in known if node.opset is None or v <= node.opset), default=None)
    return None if version is None else known[version]


@cache
def _contributed() -> dict[tuple[str, str], dict[int, Any]]:
    """The schemas that ONNX Runtime has, by domain, operator and version."""
    try:
        engine: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    except ImportError:
        return {}
    # what was built without it has no such function
    listed: Any = getattr(engine, "get_all_operator_schema", list)
    found: dict[tuple[str, str], dict[int, Any]] = {}
    for schema in listed():
        found.setdefault((schema.domain, schema.name), {})[schema.since_version] = schema
    return found


def attribute(node: Node, name: str, default: Any = None) -> Any:
    """The value of an attribute: a number, text, a list of them, a ``TensorProto``."""
    import onnx

    for found in node.proto.attribute:
        if found.name == name:
            value: Any = onnx.helper.get_attribute_value(found)
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return default


def numbers_of(node: Node) -> dict[str, float]:
    """The floating-point attributes of a node; an epsilon also where it is left to its default."""
    found = {str(a.name): _plain(a.f) for a in node.proto.attribute if a.type == a.FLOAT}
    schema = schema_of(node) or _ort_schema(node)
    known: Any = None if schema is None else schema.attributes.get("epsilon")
    if known is not None and "epsilon" not in found:
        found["epsilon"] = _plain(_default(known))
    return found


def _default(known: Any) -> float:
    """The default of an attribute: a message of onnx's, or as ONNX Runtime hands it over the bytes of one."""
    import onnx

    if hasattr(known, "default_value"):
        return known.default_value.f
    return onnx.AttributeProto.FromString(known._default_value).f


def _plain(number: float) -> float:
    """A number of float32 as it was written: 1e-05."""
    return float(str(np.float32(number)))
