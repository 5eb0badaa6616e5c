"""Models as people write them, and as ONNX Runtime rewrites them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from whynan.capture.onnx.execution import Node

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"


class NoLines:
    """Reads no line; the module is what stands before the last slash of a node's name."""

    def place_of(self, metadata: Mapping[str, str], /, *, doc: str = "") -> tuple[None, None, None]:
        return None, None, None

    def module_of(self, node_name: str, /) -> str | None:
        return node_name.rpartition("/")[0].strip("/").replace("/", ".") or None


def light(name: str, seed: int = 0) -> onnx.ModelProto:
    """One of onnx's light models, with random weights in place of its constant ones."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    random = np.random.default_rng(seed)
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    kept: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(int(n) for n in values[node.input[0]])
            fan = max(1, int(np.prod(shape[1:])))
            weights = random.standard_normal(shape, dtype=np.float32) * np.sqrt(2 / fan, dtype=np.float32)
            if len(shape) == 1:
                weights = np.abs(weights) * 0.05 + 0.5
            model.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), node.output[0]))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    read = {name for node in kept for name in node.input}
    inits = [t for t in model.graph.initializer if t.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(inits)
    names = {t.name for t in inits}
    inputs = [i for i in model.graph.input if i.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(i for i in inputs if i.name in read)
    model.ir_version = max(model.ir_version, 4)
    return model


def parsed(text: str) -> onnx.ModelProto:
    """A model in onnx's text form."""
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model)
    return model


def optimised(
    model: onnx.ModelProto, folder: Path, level: str = "ALL", *, disabled: Sequence[str] = (), name: str = "model"
) -> onnx.ModelProto:
    """The model as ONNX Runtime rewrites it at a level."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(
        ort.GraphOptimizationLevel,
        f"ORT_{'DISABLE' if level == 'DISABLED' else 'ENABLE'}_{'ALL' if level == 'DISABLED' else level}",
    )
    options.log_severity_level = 3
    target = folder / f"{name}.{level}.onnx"
    options.optimized_model_filepath = str(target)
    source = folder / f"{name}.onnx"
    onnx.save(model, source)
    ort.InferenceSession(
        str(source), options, providers=["CPUExecutionProvider"], disabled_optimizers=list(disabled) or None
    )
    return onnx.load(target)


def nodes(graph: Any, body: tuple[tuple[str, str, int], ...] = ()) -> Iterator[Node]:
    """The nodes of a graph as an engine tells of them, with one iteration of each body."""
    for index, proto in enumerate(graph.node):
        yield Node(
            index,
            proto.name,
            proto.op_type,
            proto.domain,
            tuple(proto.input),
            tuple(proto.output),
            proto,
            None,
            body,
        )
        holder = proto.name or proto.output[0]
        for attribute in proto.attribute:
            if attribute.HasField("g"):
                yield from nodes(attribute.g, (*body, (holder, attribute.name, 0)))


def all_values(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Every value of the main graph, from a session that rewrites nothing."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    there = {output.name for output in tapped.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in there:
                there.add(name)
                tapped.graph.output.append(helper.make_value_info(name, onnx.TypeProto()))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(tapped.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return {n: np.asarray(v) for n, v in zip(names, session.run(names, dict(feeds)), strict=True)}


def fed(model: onnx.ModelProto, seed: int = 0) -> dict[str, Any]:
    """Random feeds for the inputs of a model with fixed shapes."""
    random = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for given in model.graph.input:
        shape = [d.dim_value or 3 for d in given.type.tensor_type.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
        if given.type.tensor_type.elem_type == TensorProto.BOOL:
            feeds[given.name] = np.ones(shape, bool)
        elif np.issubdtype(kind, np.integer):
            feeds[given.name] = random.integers(1, 3, shape).astype(kind)
        else:
            feeds[given.name] = random.standard_normal(shape).astype(kind)
    return feeds
