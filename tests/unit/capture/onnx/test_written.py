"""A model's file read without its weights, or with weights that are mapped from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.unit.capture.onnx.told import model, node
from whynan.capture.onnx.graph.executed import Executable
from whynan.capture.onnx.graph.written import read_mapped, read_outline

LARGE = np.arange(1 << 15, dtype=np.float32).reshape(1, -1)
SMALL = np.arange(4, dtype=np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model with a large weight, one as a list of numbers, and a small one."""
    nodes = [node("Add", "x large", "a"), node("Add", "a listed", "b"), node("Mul", "b small", "y")]
    made = model(nodes, ["x"], ["y"], {"large": LARGE, "small": SMALL})
    made.graph.initializer.append(onnx.helper.make_tensor("listed", 1, LARGE.shape, LARGE.reshape(-1).tolist()))
    path = tmp_path / "net.onnx"
    onnx.save(made, path)
    return path


def test_an_outline_has_all_but_the_numbers_of_large_weights(file: Path) -> None:
    whole, outline = onnx.load(file), read_outline(str(file))
    assert outline.ByteSize() < 2000
    names = [tensor.name for tensor in outline.graph.initializer]
    assert names == [tensor.name for tensor in whole.graph.initializer]
    held = {tensor.name: tensor for tensor in outline.graph.initializer}
    assert held["small"] == next(t for t in whole.graph.initializer if t.name == "small")
    assert [held[name].data_location for name in ("large", "listed")] == [onnx.TensorProto.EXTERNAL] * 2
    assert list(held["large"].dims) == list(LARGE.shape)
    for part in (whole, outline):
        del part.graph.initializer[:]
    assert outline == whole


def test_mapped_weights_are_those_of_the_file(file: Path) -> None:
    mapped = read_mapped(str(file))
    (entry,) = (tensor for tensor in mapped.graph.initializer if tensor.data_location)
    assert entry.name == "large"
    graph = Executable(mapped, file.parent)
    for name, expected in (("large", LARGE), ("listed", LARGE), ("small", SMALL)):
        assert np.array_equal(graph.array(name), expected)
    assert len(list(mapped.graph.initializer)) == 3


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    path.write_bytes(b"\x3a\xff\xff\x7f no model")
    with pytest.raises((ValueError, IndexError)):
        read_outline(str(path))
