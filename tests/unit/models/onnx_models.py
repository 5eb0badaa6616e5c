"""Small ONNX models to open: the smallest of each kind that a test speaks of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


def info(name: str, dims: Sequence[int | str | None] | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    *,
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = OPSET,
    ir: int = 9,
    **rest: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "graph", inputs, outputs or [info("y", None)], weights)
    imports = rest.pop("opset_imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, **rest)


def written(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def taking(*inputs: onnx.ValueInfoProto, **rest: Any) -> onnx.ModelProto:
    """A model of any inputs, that hands the first on."""
    return model_of([helper.make_node("Identity", [inputs[0].name], ["y"])], inputs, **rest)


def relu() -> onnx.ModelProto:
    return model_of([helper.make_node("Relu", ["x"], ["y"], name="r")], [info("x", ["N", 4])])


def external(location: str = "weights.bin", *, n: int = 4, **entries: str) -> onnx.ModelProto:
    """A model whose weight of `n` numbers is in another file."""
    weight = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[n], data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": location} | entries).items():
        weight.external_data.add(key=key, value=value)
    return model_of([helper.make_node("Add", ["x", "w"], ["y"], name="a")], [info("x", [n])], weights=[weight])


def stored(folder: Path, n: int = 4) -> Path:
    """The file of such a weight."""
    path = folder / "weights.bin"
    path.write_bytes(np.ones(n, np.float32).tobytes())
    return path


def tensor(array: Any, name: str = "x") -> bytes:
    return numpy_helper.from_array(np.asarray(array), name).SerializeToString()
