"""A graph that is cut into segments, so that all that is alive at any time fits in memory."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.unit.capture.onnx.told import Told, model, node, saved
from whynan.capture.onnx.arrays import same_bits
from whynan.capture.onnx.engine import EngineSettings, Outcome, open_engine, run
from whynan.capture.onnx.graph.executed import Executable
from whynan.capture.onnx.graph.written import read_written
from whynan.capture.onnx.segments import available_bytes, free_memory, memory_exceeded_note, plan_of, resident
from whynan.report.notes import sentence

X = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)


def residual(layers: int = 6) -> onnx.ModelProto:
    """Layers of a product and a sum with the first value, which stays alive to the end."""
    nodes, value = [node("Neg", "x", "first", "neg")], "first"
    weights: dict[str, Any] = {}
    for i in range(layers):
        weights[f"w{i}"] = np.random.default_rng(i).standard_normal((8, 8)).astype(np.float32)
        nodes.append(node("MatMul", f"{value} w{i}", f"m{i}", f"matmul{i}"))
        nodes.append(node("Add", f"m{i} first", f"a{i}", f"add{i}"))
        value = f"a{i}"
    nodes.append(node("Sqrt", value, "y", "sqrt"))
    return model(nodes, ["x"], ["y", "m2"], weights)


def ran(path: str, memory: int | None) -> tuple[Told, Outcome]:
    told = Told(again=True)
    outcome = run(EngineSettings(path, graph="original", memory=memory), {"x": X}, told)
    assert outcome.bit_equal is True
    assert all(told.same_alone)
    return told, outcome


@pytest.mark.parametrize("external", [False, True])
def test_segments_tell_what_one_session_tells(tmp_path: Path, external: bool) -> None:
    how: dict[str, Any] = {"save_as_external_data": True, "location": "w", "size_threshold": 0} if external else {}
    path = saved(residual(), tmp_path, **how)
    whole, one = ran(path, None)
    cut, many = ran(path, 1)
    assert one.segments == 1
    assert many.segments == many.nodes == 14
    assert cut.order == whole.order
    assert cut.counted == whole.counted
    assert all(same_bits(value, whole.values[name]) for name, value in cut.values.items())
    assert all(same_bits(value, whole.left[name]) for name, value in cut.left.items())


def test_a_model_in_segments_is_run_again(tmp_path: Path) -> None:
    with open_engine(EngineSettings(saved(residual(), tmp_path), memory=1)) as engine:
        for _ in range(2):
            outcome = engine.run({"x": X}, Told())
            assert outcome.bit_equal is True
            assert outcome.segments > 1


def graph(tmp_path: Path) -> Executable:
    return Executable(onnx.load(saved(residual(), tmp_path)), tmp_path)


@pytest.mark.parametrize("room", [5 << 20, 6 << 20, 8 << 20, 16 << 20])
def test_no_segment_takes_more_than_there_is(tmp_path: Path, room: int) -> None:
    executable = graph(tmp_path)
    size = 1 << 20
    plan = plan_of(executable, dict.fromkeys(range(14), size), room)
    assert plan[-1] == 14
    begin = 0
    for end in plan:
        assert end > begin
        alive = [
            name
            for name, index in executable.producers.items()
            if index < begin and (executable.last_reads.get(name, -1) >= begin or name in executable.outputs)
        ]
        taken = (4 << 20) + size * (end - begin + len(alive))
        assert taken <= room or end - begin == 1
        begin = end


def test_more_room_makes_fewer_segments(tmp_path: Path) -> None:
    executable = graph(tmp_path)
    sizes = dict.fromkeys(range(14), 1 << 20)
    counts = [len(plan_of(executable, sizes, room << 20)) for room in (1, 6, 8, 12, 40)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 14
    assert counts[-1] == 1


def test_segments_write_no_more_than_the_next_can_use_again(tmp_path: Path) -> None:
    executable = graph(tmp_path)
    assert plan_of(executable, dict.fromkeys(range(14), 10 << 20), sys.maxsize) == (3, 6, 9, 12, 14)
    assert plan_of(executable, dict.fromkeys(range(14), 1 << 40), sys.maxsize) == tuple(range(1, 15))


def test_without_sizes_a_bound_means_one_node_at_a_time(tmp_path: Path) -> None:
    executable = graph(tmp_path)
    assert len(plan_of(executable, {}, 1 << 40)) == 14
    assert plan_of(executable, {}, sys.maxsize) == (14,)


def test_the_bound_is_that_of_the_whole_process() -> None:
    assert available_bytes(resident() + (1 << 30)) <= 1 << 30
    assert available_bytes(1) == 0
    free = free_memory()
    assert free is not None
    assert 0 < available_bytes(None) < free


def test_nodes_are_counted_without_reading_weights(tmp_path: Path) -> None:
    assert len(read_written(saved(residual(), tmp_path)).nodes) == 14
    (tmp_path / "not.onnx").write_bytes(b"\xff" * 100)
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert read_written(str(tmp_path / "not.onnx")).nodes == read_written(str(tmp_path / "empty.onnx")).nodes == []


def test_the_shapes_of_weights_are_read_without_them(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c s s s s", "b"), node("Relu", "b", "r")]
    weights = {"w": np.zeros((300, 3, 1, 1), np.float32), "s": np.ones(300, np.float32)}
    written = read_written(saved(model(nodes, ["x"], ["r"], weights), tmp_path))
    assert written.shapes == {"w": [300, 3, 1, 1], "s": [300]}
    assert written.weights == 300 * 3 + 300


def test_a_bound_that_was_not_kept_is_told() -> None:
    wide = resident() * 1000
    assert memory_exceeded_note(None) is None
    assert memory_exceeded_note(wide) is None
    told = memory_exceeded_note(10_000)
    assert told is not None
    found = re.fullmatch(
        r"--memory could not be kept: the process that ran the model came to ([0-9,]+) MB, and was to stay within"
        r" 0\.01 MB",
        sentence(told),
    )
    assert found is not None
    assert resident() / 1e6 - 1 <= int(found[1].replace(",", ""))
