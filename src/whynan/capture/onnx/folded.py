"""What ONNX Runtime has computed before the run: constants of the executed graph that nodes of the file make.

Those that hold something bad are made once more, node by node as the file has them, so that their births are seen.
"""

# pyright: strict

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper

from whynan.capture.onnx.executable import Executable, bodies_of, without_weights
from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.masks import floating, is_bad
from whynan.capture.onnx.scopes import Run, Scope
from whynan.capture.onnx.sessions import as_executed
from whynan.capture.onnx.values import launch, read, said, same_bits
from whynan.models.onnx_walking import nodes, tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from whynan.capture.onnx.execution import Node, Observer, Tensor
    from whynan.capture.onnx.walk import Walk
    from whynan.capture.onnx.written import Written

_OWN_INPUTS: Final = 4
"""From this version of the format on, an initializer that is an input too is only what it is where nothing is given."""


class Folded:
    """The nodes of a file that were folded into constants which are bad; told of before the nodes that are executed.

    ``names`` are these constants, ``nodes`` what makes them, numbered below the executed ones: ..., -2, -1.
    """

    def __init__(self, graph: Executable, written: Written, walk: Walk, path: str) -> None:
        self._walk = walk
        self.names: frozenset[str] = frozenset()
        self.nodes: tuple[Node, ...] = ()
        self.notes: tuple[str, ...] = ()
        bad, within = _bad(graph, written), _bad_within(graph)
        if not bad and not within:
            return
        try:
            within = _unwritten(path, within)
            made, missing = _made(path, bad, walk.folder)
            if made is not None and not self._is_same(made, bad):
                made, missing = None, [*made.outputs, *missing]
        except (RunError, OSError, ValueError) as error:
            made, missing = None, list(bad)
            self.notes = (f"what was computed before the run could not be computed again: {error}",)
        if missing or within:
            self.notes += (
                f"what is bad in {', '.join([*missing, *within])} was computed by the optimizer before the run; "
                "--graph original tells where it is born",
            )
        if made is not None:
            count = len(made.nodes)
            self._graph, self.names = made, frozenset(made.outputs)
            # a place counted from the end is the same one in every table of the graph's nodes
            self.nodes = tuple(dataclasses.replace(node, index=node.index - count) for node in made.nodes)

    def run(self, observer: Observer) -> None:
        """Run the nodes once more, and tell of them."""
        if self.nodes:
            self._walk.run(Run(Scope(self._graph), observer, self.nodes, set()), (len(self.nodes),))

    def _is_same(self, made: Executable, bad: Mapping[str, Tensor]) -> bool:
        """Whether the nodes still give the bits that the executed graph has."""
        try:
            session = as_executed(self._walk.settings, self._walk.handed(made.model), apart=True)
            found = launch(session, list(made.outputs), {})
        except Exception as error:
            raise RunError(said(error), 0) from None
        return all(same_bits(read(value), bad[name]) for name, value in zip(made.outputs, found, strict=True))


def _bad(graph: Executable, written: Written) -> dict[str, Tensor]:
    """The constants that hold something bad and that do not stand in the file, neither as weights nor as nodes."""
    if not written.nodes:
        # what the file says is not known
        return {}
    stands = {output for op, _, outputs in written.nodes if op == "Constant" for output in outputs}
    found: dict[str, Tensor] = {}
    for name in graph.constants:
        if name not in written.shapes and name not in stands:
            array = graph.array(name)
            if floating(array) and is_bad(array):
                found[name] = array
            # what is mapped counts as memory
            graph.forget()
    return found


def _bad_within(graph: Executable) -> dict[str, Tensor]:
    """The constants of all bodies that hold something bad."""
    found: dict[str, Tensor] = {}
    for node in graph.nodes:
        for attribute, _ in bodies_of(node.proto):
            body = graph.body(node, attribute)
            for name in body.constants:
                array = body.array(name)
                if floating(array) and is_bad(array):
                    found[name] = array
            body.forget()
            found.update(_bad_within(body))
    return found


def _unwritten(path: str, bad: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of the bad constants of bodies those that stand nowhere in the file."""
    if not bad:
        return bad
    model = without_weights(Path(path))
    return {name: array for name, array in bad.items() if not _is_written(model, array)}


def _made(path: str, bad: Mapping[str, Tensor], folder: Path) -> tuple[Executable | None, list[str]]:
    """The nodes of a file that make some values of nothing but constants, as a graph; and what no node makes so."""
    model = without_weights(Path(path))
    held = model.graph
    weights = _weights(model)
    known = {*weights, *(tensor.values.name for tensor in held.sparse_initializer), ""}
    makers: dict[str, int] = {}
    for index, node in enumerate(held.node):
        if all(name in known for name in node.input) and not bodies_of(node):
            known.update(node.output)
            makers.update((name, index) for name in node.output if name)
    found = [name for name in bad if name in makers]
    missing = [name for name, array in bad.items() if name not in known and not _is_written(model, array)]
    if not found:
        return None, missing
    needed = [held.node[index] for index in _behind(found, makers, held)]
    reads = {name for node in needed for name in node.input if name not in makers}
    graph = helper.make_graph(
        needed,
        held.name,
        [],
        [onnx.ValueInfoProto(name=name) for name in found],
        [_whole(tensor, path) for name, tensor in weights.items() if name in reads],
        sparse_initializer=[each for each in held.sparse_initializer if each.values.name in reads],
    )
    made = onnx.ModelProto(ir_version=model.ir_version, graph=graph)
    made.opset_import.extend(model.opset_import)
    made.functions.extend(model.functions)
    return Executable(made, folder), missing


def _weights(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """The constants of a file that nothing given can replace, and the shapes that it says of values."""
    held = model.graph
    free = {value.name for value in held.input} if model.ir_version >= _OWN_INPUTS else set[str]()
    found = {tensor.name: tensor for tensor in held.initializer if tensor.name not in free}
    kinds = {value.name: value.type.tensor_type for value in (*held.input, *held.value_info)}
    for node in held.node:
        kind = kinds.get(node.input[0]) if node.op_type == "Shape" and not node.attribute else None
        if kind is not None and kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim):
            sizes = np.array([d.dim_value for d in kind.shape.dim], np.int64)
            found[node.output[0]] = numpy_helper.from_array(sizes, node.output[0])
    return found


def _is_written(model: onnx.ModelProto, array: Tensor) -> bool:
    """Whether the file itself has a constant like this one, under whatever name and in whatever body."""
    shape = array.shape
    for tensor in tensors(model):
        inside = tuple(tensor.dims) == shape and not external_data_helper.uses_external_data(tensor)
        if inside and same_bits(numpy_helper.to_array(tensor), array):
            return True
    numbers = (a for held in nodes(model) if held.node.op_type == "Constant" for a in held.node.attribute)
    return any(
        (a.name == "value_float" and same_bits(np.array(a.f, np.float32), array))
        or (a.name == "value_floats" and same_bits(np.array(a.floats, np.float32), array))
        for a in numbers
    )


def _whole(tensor: onnx.TensorProto, path: str) -> onnx.TensorProto:
    """A constant with its elements, where the file has them in another."""
    if external_data_helper.uses_external_data(tensor):
        external_data_helper.load_external_data_for_tensor(tensor, str(Path(path).parent))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return tensor


def _behind(names: Iterable[str], makers: Mapping[str, int], graph: onnx.GraphProto) -> list[int]:
    """The places of the nodes that some values are made by, of those too that make what they read."""
    found: set[int] = set()
    waiting = list(names)
    while waiting:
        index = makers.get(waiting.pop())
        if index is not None and index not in found:
            found.add(index)
            waiting.extend(graph.node[index].input)
    return sorted(found)
