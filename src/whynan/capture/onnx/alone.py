"""One node of an executed graph by itself, on any values, as the engine ran it in the graph."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import helper

from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.sessions import as_executed
from whynan.capture.onnx.taps import as_model
from whynan.capture.onnx.values import give, kind_of, launch, read, said, same_bits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import TypeProto

    from whynan.capture.onnx.executable import Executable
    from whynan.capture.onnx.execution import Node, Value
    from whynan.capture.onnx.walk import Walk

_MOST: Final = 512
"""Sessions that are kept."""


class LoneNodes:
    """Runs nodes by themselves, each in a session of its own, which is kept for the next time."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._sessions: dict[Any, Any] = {}

    def __call__(self, node: Node, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a node, in the order of its names; raises ``RuntimeError`` where that cannot be done."""
        graph = self._walk.owners.get(id(node.proto))
        if graph is None:
            raise RuntimeError(f"{node.op} {node.name} is no node of the executed graph")
        try:
            return self._run(graph, node, inputs)
        except RunError as error:
            raise RuntimeError(error.what) from None
        except Exception as error:
            # whatever an engine and its bindings make of values that the graph never gave them
            raise RuntimeError(said(error)) from None

    def _run(self, graph: Executable, node: Node, inputs: Sequence[Value]) -> list[Value]:
        constants: list[str] = []
        fed: dict[str, tuple[Value, TypeProto]] = {}
        for name, value in zip(node.inputs, inputs, strict=True):
            if not name or name in constants:
                continue
            if self._is_constant(graph, name, value):
                constants.append(name)
            else:
                fed[name] = value, self._kind(name, value)
        for name in graph.reads[node.index]:
            # what a body reads of the graphs around it
            if name not in node.inputs:
                self._around(graph, name, constants, fed)
        kinds = tuple((name, kind.SerializeToString()) for name, (_, kind) in fed.items())
        key = id(node.proto), tuple(constants), kinds
        session = self._sessions.get(key)
        if session is None:
            session = self._opened(graph, node, constants, {n: kind for n, (_, kind) in fed.items()})
            if len(self._sessions) >= _MOST:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[key] = session
        given = {name: give(value, kind) for name, (value, kind) in fed.items()}
        found = launch(session, [name for name in node.outputs if name], given)
        results = iter(found)
        # an own copy: the next run of the session may use the memory again
        return [_kept(read(next(results))) if name else None for name in node.outputs]

    def _is_constant(self, graph: Executable, name: str, value: Value) -> bool:
        here = self._walk.here
        found = graph.constant_of(name)
        if found is None or (here is not None and here.has(name)):
            return False
        constant = found[0].array(found[1])
        return constant is value or same_bits(constant, value)

    def _kind(self, name: str, value: Value) -> TypeProto:
        here = self._walk.here
        if here is not None and here.has(name):
            kind = here.kind(name)
            # of all else the value given may be of another type than the one that was there
            if value is None or isinstance(value, list) or kind.HasField("optional_type"):
                return kind
        return kind_of(value)

    def _around(
        self, graph: Executable, name: str, constants: list[str], fed: dict[str, tuple[Value, TypeProto]]
    ) -> None:
        here = self._walk.here
        if here is not None and here.has(name):
            fed[name] = here.seen(name), here.kind(name)
        elif graph.constant_of(name) is not None:
            constants.append(name)
        else:
            raise RuntimeError(f"the value {name} is gone")

    def _opened(
        self,
        graph: Executable,
        node: Node,
        constants: Sequence[str],
        kinds: dict[str, TypeProto],
    ) -> Any:
        holders = [graph.constant_of(name) for name in constants]
        owners = [holder[0] for holder in holders if holder is not None]
        body = helper.make_graph(
            [node.proto],
            "alone",
            [onnx.ValueInfoProto(name=name, type=kind) for name, kind in kinds.items()],
            [onnx.ValueInfoProto(name=name) for name in node.outputs if name],
            [o.constants[name] for o, name in zip(owners, constants, strict=True) if name in o.constants],
            sparse_initializer=[o.sparse[n] for o, n in zip(owners, constants, strict=True) if n in o.sparse],
        )
        return as_executed(self._walk.settings, self._walk.handed(as_model(graph, body)), apart=True)


def _kept(value: Value) -> Value:
    return np.array(value) if isinstance(value, np.ndarray) else value
