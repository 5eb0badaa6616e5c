"""What executed nodes come from, found by running models and comparing numbers, without a name in sight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


@cache
def block() -> int:
    """How many channels ONNX Runtime puts into one block on this machine."""
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain="com.microsoft.nchwc")
    wide = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, 1, 2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft.nchwc", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [wide], [out]), opset_imports=opsets, ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.arange(128, dtype=np.float32).reshape(1, 64, 1, 2)})
    return int(np.argmax(np.asarray(found).reshape(-1) == 1.0))


def unblocked(value: np.ndarray, channels: int) -> np.ndarray:
    """A value in blocks of channels, as any other."""
    n, padded, height, width = value.shape
    size = block()
    ordered = value.reshape(n, padded // size, height, width, size).transpose(0, 1, 4, 2, 3)
    return ordered.reshape(n, padded, height, width)[:, :channels]


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two values are the same up to the rounding of another order of calculation."""
    if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
        return False
    if one.dtype.kind != "f":
        return bool((one == other).all())
    scale = float(np.abs(other).max(initial=0.0)) or 1.0
    return bool(np.allclose(one, other, rtol=1e-2, atol=2e-4 * scale))


def same_numbers(
    executed: Mapping[str, np.ndarray], written: Mapping[str, np.ndarray], blocked: set[str]
) -> dict[str, set[str]]:
    """For each executed value the written ones that hold the same numbers."""
    found: dict[str, set[str]] = {}
    by_size: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name, value in written.items():
        by_size[value.shape].append(name)
    for name, value in executed.items():
        if name not in blocked:
            found[name] = {other for other in by_size[value.shape] if alike(value, written[other])}
            continue
        there: set[str] = set()
        for shape, others in by_size.items():
            if len(shape) == 4 and (shape[0], shape[2:]) == (value.shape[0], value.shape[2:]):
                plain = unblocked(value, shape[1])
                there |= {other for other in others if alike(plain, written[other])}
        found[name] = there
    return found


def changed(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> set[str]:
    """The values that are not bit for bit what they were."""
    return {name for name, value in before.items() if value.tobytes() != after[name].tobytes()}


def disturbed(model: onnx.ModelProto, initializer: str) -> onnx.ModelProto:
    """The model with one of its weights, and only that, a little greater."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (tensor,) = [t for t in copy.graph.initializer if t.name == initializer]
    weights = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array((weights * np.float32(1.5)).astype(weights.dtype), initializer))
    return copy


def first_changed(model: Any, values: set[str]) -> set[str]:
    """The outputs of the nodes that write a changed value and read none."""
    found: set[str] = set()
    for node in model.graph.node:
        if values & set(node.output) and not values & set(node.input):
            found |= set(node.output) & values
    return found
