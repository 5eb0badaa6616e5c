"""How the nodes around a birth are read off what is remembered of a graph's values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whynan.capture.onnx.counts import dtype_name, finite_range, value_at
from whynan.capture.onnx.execution import attribute, operand_names
from whynan.capture.provenance.neighbourhood import NeighbourhoodLog, limits, plain_argument
from whynan.records import Argument, Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.execution import Node, Value
    from whynan.capture.onnx.provenance.body_scopes import Scope, Scopes, ValueWriter
    from whynan.capture.provenance.neighbourhood import Numbers
    from whynan.traces import Birth

_FEW = 8
"""Elements of a list of numbers, as axes are, that are told one by one."""


class NodeNeighbourhoods:
    """The neighbourhoods of a run's births. Nothing of it works while nothing is bad, and it keeps no values."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._around = NeighbourhoodLog(self, "onnx")
        self._nodes: dict[int, Node] = {}
        self._inputs: Sequence[Value] = ()
        self._outputs: Sequence[Value] = ()
        self._ordinal = -1

    def record_bad_node(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value], ordinal: int) -> None:
        """A node has written or read something bad; its values are there until the next one comes."""
        self._inputs, self._outputs, self._ordinal = inputs, outputs, ordinal
        self._nodes[ordinal] = node
        self._around.record_bad_reader(ordinal)

    def begin(self, birth: Birth, ordinal: int, way: Sequence[ValueWriter] = ()) -> None:
        """A birth at the node that has come last, or told of the one that the way to that node begins with."""
        self._nodes |= {written.ordinal: written.node for written in way}
        middle, *later = (*(written.ordinal for written in way), ordinal)
        self._around.begin(birth, middle, later)

    def writers_read(self, event: int) -> frozenset[int]:
        """The events that had written what a node has read."""
        node = self._nodes.get(event)
        found = [self._writer(name) for name in node.inputs] if node is not None else []
        return frozenset(e for e in found if e is not None)

    def operation(self, event: int, hops: int, numbers: Numbers) -> Operation | None:
        """A node by its event; None where it stands in a body that is over."""
        node = self._nodes.get(event)
        if node is None:
            return None
        here = event == self._ordinal
        arguments: list[Argument | None] = []
        for i, (name, value) in enumerate(zip(operand_names(node), node.inputs, strict=False)):
            if value:
                given = self._inputs[i] if here and i < len(self._inputs) else self._value(value)
                arguments.append(self._argument(name, value, given, numbers))
        arguments += [plain_argument(name, value) for name, value in _attributes(node).items()]
        equation = attribute(node, "equation")
        arguments += [Argument(name="equation", text=equation)] if isinstance(equation, str) else []
        first = next((i for i, o in enumerate(node.outputs) if o), 0)
        written = self._outputs[first] if here and self._outputs else self._value(node.outputs[first])
        return Operation(
            event=event,
            op=node.op if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op}",
            hops=hops,
            arguments=tuple(a for a in arguments if a is not None),
            shape=None if written is None or isinstance(written, list) else tuple(int(s) for s in np.shape(written)),
        )

    def _argument(self, name: str, value: str, given: Any, numbers: Numbers) -> Argument:
        found = self._level(value)
        event = self._writer(value)
        elements = numbers.number_of((value, None if found is None else found[1]))
        if given is None or isinstance(given, list):
            return Argument(name=name, event=event, elements=elements)
        tensor = np.asarray(given)
        if tensor.dtype.kind in "OUS":
            return Argument(name=name, event=event, elements=elements)
        listed: tuple[Any, ...] | None = None
        if tensor.dtype.kind in "iu" and tensor.ndim == 1 and tensor.size <= _FEW:
            listed = tuple(int(v) for v in tensor)
        low, high = limits(*finite_range(tensor)) if tensor.size else (None, None)
        if tensor.size == 1 and low is None:
            low, high = limits(*(value_at(tensor, (0,) * tensor.ndim),) * 2)
        return Argument(
            name=name,
            event=event,
            elements=elements,
            numbers=listed,
            shape=tuple(int(s) for s in tensor.shape),
            dtype=dtype_name(tensor.dtype),
            min=low,
            max=high,
        )

    def _level(self, name: str) -> tuple[Scope, int] | None:
        for depth in range(len(self._scopes.stack) - 1, -1, -1):
            scope = self._scopes.stack[depth]
            if name in scope.writers or name in scope.kinds:
                return scope, depth
            if name in scope.carried:
                return None
        return None

    def _writer(self, name: str) -> int | None:
        found = self._level(name) if name else None
        written = None if found is None else found[0].writers.get(name)
        if written is None:
            return None
        self._nodes[written.ordinal] = written.node
        return written.ordinal

    def _value(self, name: str) -> Any:
        return self._scopes.value(name) if name else None


def _attributes(node: Node) -> dict[str, Any]:
    """Numbers and lists of numbers among the attributes."""
    found: dict[str, Any] = {}
    for each in node.proto.attribute:
        if each.type == each.FLOAT:
            found[str(each.name)] = float(str(np.float32(each.f)))
        elif each.type == each.INT:
            found[str(each.name)] = int(each.i)
        elif each.type == each.INTS:
            found[str(each.name)] = [int(i) for i in each.ints]
    return found
