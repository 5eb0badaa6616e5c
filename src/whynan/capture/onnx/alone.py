"""One node of an executed graph by itself, on any values, as the engine ran it in the graph."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import helper

from whynan.capture.onnx.blocks import FLAT
from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.sessions import as_executed
from whynan.capture.onnx.taps import as_model
from whynan.capture.onnx.values import give, kind_of, launch, read, said, same_bits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import TypeProto

    from whynan.capture.onnx.executable import Executable
    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.walk import Walk

_PLAIN: Final = "/whynan plain"
_MOST: Final = 512
"""Sessions that are kept."""
_ALIGNED: Final = 16
"""Channels of a block at most: more of them, all zero, do no harm."""


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
        blocks = self._walk.blocks(graph)
        if blocks.is_reorder(node):
            # looked at, a value in blocks is what it was before
            return [_kept(inputs[0])]
        constants: list[str] = []
        fed: dict[str, tuple[Value, TypeProto]] = {}
        turned: dict[str, str] = {}
        for name, value in zip(node.inputs, inputs, strict=True):
            if not name or name in constants:
                continue
            if self._is_constant(graph, name, value):
                constants.append(name)
            elif name in blocks.channels or name in blocks.aliases:
                turned[name] = name + _PLAIN
                fed[turned[name]] = _aligned(value), self._kind(name, value)
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
            session = self._opened(graph, node, constants, {n: kind for n, (_, kind) in fed.items()}, turned)
            if len(self._sessions) >= _MOST:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[key] = session
        names = _given(node, blocks.channels)
        found = launch(
            session, [name for name in names if name], {name: give(value, kind) for name, (value, kind) in fed.items()}
        )
        results = iter(found)
        # an own copy: the next run of the session may use the memory again
        return [_kept(read(next(results))) if name else None for name in names]

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
        turned: dict[str, str],
    ) -> Any:
        blocks = self._walk.blocks(graph)
        back = [blocks.turn_back(name, plain) for name, plain in turned.items()]
        before = [each for nodes, _ in back for each in nodes]
        after = [n for name in node.outputs if name in blocks.channels for n in blocks.turn(name, name + _PLAIN)]
        holders = [graph.constant_of(name) for name in constants]
        owners = [holder[0] for holder in holders if holder is not None]
        names = _given(node, blocks.channels)
        body = helper.make_graph(
            [*before, node.proto, *after],
            "alone",
            [onnx.ValueInfoProto(name=name, type=kind) for name, kind in kinds.items()],
            [onnx.ValueInfoProto(name=name) for name in names if name],
            [
                *(o.constants[name] for o, name in zip(owners, constants, strict=True) if name in o.constants),
                *(constant for _, shapes in back for constant in shapes),
                *([FLAT] if any(name in blocks.five for name in node.outputs) else []),
            ],
            sparse_initializer=[o.sparse[n] for o, n in zip(owners, constants, strict=True) if n in o.sparse],
        )
        return as_executed(self._walk.settings, self._walk.handed(as_model(graph, body)), apart=True)


def _given(node: Node, channels: dict[str, int]) -> list[str]:
    """The name under which each output of a node is given."""
    return [name + _PLAIN if name in channels else name for name in node.outputs]


def _aligned(value: Value) -> Value:
    """A value whose channels ONNX Runtime can put in blocks."""
    array: Tensor = np.asarray(value)
    missing = -array.shape[1] % _ALIGNED if array.shape[1] % 4 else 0
    if not missing:
        return array
    return np.concatenate([array, np.zeros((array.shape[0], missing, *array.shape[2:]), array.dtype)], 1)


def _kept(value: Value) -> Value:
    return np.array(value) if isinstance(value, np.ndarray) else value
