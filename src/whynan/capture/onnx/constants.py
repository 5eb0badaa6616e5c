"""The bad constants of an executed graph that the file does not have: ONNX Runtime computed them before the run."""

# pyright: strict

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import external_data_helper, numpy_helper

from whynan.capture.onnx.executable import Executable, bodies_of, without_weights
from whynan.capture.onnx.masks import floating, is_bad
from whynan.capture.onnx.values import same_bits
from whynan.models.onnx_walking import nodes, tensors

if TYPE_CHECKING:
    import onnx

    from whynan.capture.onnx.execution import Tensor
    from whynan.capture.onnx.written import Written


def computed(graph: Executable, written: Written, path: str) -> tuple[str, ...]:
    """The names of these constants, of the graph and of all bodies in it."""
    if not written.nodes:
        # what the file says is not known
        return ()
    stands = {output for op, _, outputs in written.nodes if op == "Constant" for output in outputs}
    bad = _bad(graph, {*written.shapes, *stands})
    if not bad:
        return ()
    model = without_weights(Path(path))
    return tuple(name for name, array in bad.items() if not _is_written(model, array))


def _bad(graph: Executable, known: set[str]) -> dict[str, Tensor]:
    """The bad constants of a graph and its bodies; names tell only those of the main graph from the file's own."""
    found: dict[str, Tensor] = {}
    for name in graph.constants:
        if name not in known:
            array = graph.array(name)
            if floating(array) and is_bad(array):
                found[name] = array
            # what is mapped counts as memory
            graph.forget()
    for node in graph.nodes:
        for attribute, _ in bodies_of(node.proto):
            found |= _bad(graph.body(node, attribute), set())
    return found


def _is_written(model: onnx.ModelProto, array: Tensor) -> bool:
    """Whether the file itself has a constant like this one, under whatever name and in whatever body."""
    for tensor in tensors(model):
        inside = tuple(tensor.dims) == array.shape and not external_data_helper.uses_external_data(tensor)
        if inside and same_bits(numpy_helper.to_array(tensor), array):
            return True
    numbers = (a for held in nodes(model) if held.node.op_type == "Constant" for a in held.node.attribute)
    return any(
        (a.name == "value_float" and same_bits(np.array(a.f, np.float32), array))
        or (a.name == "value_floats" and same_bits(np.array(a.floats, np.float32), array))
        for a in numbers
    )
