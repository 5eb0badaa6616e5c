"""The ways to look at a model's values in inference, each in a process of its own: ``FOLDER NAME WAY [BYTES]``."""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.resident import peak

BARE, TRACED, BOUNDED = "bare", "whynan", "whynan, bounded"
MARKED, POLYGRAPHY, REFERENCE = "all outputs marked, min and max", "Polygraphy, all marked", "ReferenceEvaluator"
LIBRARIES = ("onnxruntime",)
OWN = {
    TRACED: ("whynan.capture.onnx.engine",),
    BOUNDED: ("whynan.capture.onnx.engine",),
    MARKED: ("onnx",),
    POLYGRAPHY: ("polygraphy.backend.onnx", "polygraphy.backend.onnxrt"),
    REFERENCE: ("onnx.reference",),
}
"""What a way has imported before its time begins."""
SLOW = (BOUNDED, REFERENCE)
"""Run once and no more."""


class Counting:
    """An observer that counts every value of every node."""

    def __init__(self) -> None:
        from whynan.capture.onnx.counts import Counts

        self._counters = Counts()
        self.values = self.bad = 0

    def on_begin(self, nodes: Any, alone: Any) -> None:
        """Nothing."""

    def on_input(self, name: str, value: Any, kind: str) -> None:
        """Weights are counted once, where they are told of."""

    def on_values(self, values: Any) -> None:
        """All of them are counted."""
        self._counters.ahead(values)

    def on_node(self, _: Any, __: Any, outputs: Any) -> None:
        for value in outputs:
            if value is not None:
                self.values += 1
                self.bad += self._counters(value).bad

    def on_body_enter(self, names: Any, values: Any, carried: Any) -> None:
        """Nothing."""

    def on_body_leave(self, names: Any, values: Any) -> None:
        """Nothing."""

    def on_output(self, name: str, value: Any) -> None:
        """Nothing."""


Run = Callable[[], int]
"""Run the model once; how many values were looked at."""


def _session(path: str, level: str = "ORT_ENABLE_ALL") -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    # a process that waits for its turn would otherwise take the time of the one that runs
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@contextmanager
def bare(path: str, feed: Any, _: int | None) -> Iterator[tuple[Run, dict[str, Any]]]:
    session = _session(path)
    name = session.get_inputs()[0].name
    yield lambda: len(session.run(None, {name: feed})), {}


@contextmanager
def traced(path: str, feed: Any, memory: int | None) -> Iterator[tuple[Run, dict[str, Any]]]:
    from whynan.capture.onnx.engine import EngineSettings, open_engine

    said: dict[str, Any] = {}
    first = [True]
    with open_engine(EngineSettings(path, memory=memory, repeated=True)) as engine:

        def run() -> int:
            counting = Counting()
            outcome = engine.run({engine.executed_model.graph.input[0].name: feed}, counting, compare=first[0])
            if first[0]:
                said.update(bit_equal=outcome.bit_equal, segments=outcome.segments, nodes=outcome.nodes)
                said.update(bad=counting.bad)
            first[0] = False
            return counting.values

        yield run, said


@contextmanager
def marked(path: str, feed: Any, _: int | None) -> Iterator[tuple[Run, dict[str, Any]]]:
    import onnx

    proto = onnx.load(path)
    known = {output.name for output in proto.graph.output}
    names = [name for node in proto.graph.node for name in node.output if name and name not in known]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    other = str(Path(path).with_suffix(".marked.onnx"))
    onnx.save(proto, other)
    session = _session(other)
    name = proto.graph.input[0].name

    def run() -> int:
        found = session.run(None, {name: feed})
        for value in found:
            value.min()
            value.max()
        return len(found)

    yield run, {}


@contextmanager
def polygraphy(path: str, feed: Any, _: int | None) -> Iterator[tuple[Run, dict[str, Any]]]:
    from polygraphy import constants  # type: ignore[import-not-found]
    from polygraphy.backend.onnx import ModifyOutputs, OnnxFromPath  # type: ignore[import-not-found]
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx  # type: ignore[import-not-found]

    model = ModifyOutputs(OnnxFromPath(path), outputs=constants.MARK_ALL)
    with OnnxrtRunner(SessionFromOnnx(lambda: model().SerializeToString())) as runner:
        name = next(iter(runner.get_input_metadata()))

        def run() -> int:
            found = runner.infer({name: feed})
            for value in found.values():
                value.min()
                value.max()
            return len(found)

        yield run, {}


@contextmanager
def reference(path: str, feed: Any, _: int | None) -> Iterator[tuple[Run, dict[str, Any]]]:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path, verbose=3)

    def run() -> int:
        with redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            evaluator.run(None, {evaluator.input_names[0]: feed})
        return len(evaluator.rt_nodes_)

    yield run, {}


WAYS: dict[str, Any] = {
    BARE: bare,
    TRACED: traced,
    BOUNDED: traced,
    MARKED: marked,
    POLYGRAPHY: polygraphy,
    REFERENCE: reference,
}


def main(folder: str, name: str, way: str, memory: str = "") -> None:
    """Build, run once, and then as often as asked at each turn; every answer is a line of JSON."""
    from benchmarks.inference_models import MODELS

    to = _answers()
    model = next(model for model in MODELS if model.name == name)
    feed = model.feed()
    # what the libraries take to be imported is not the model's
    for library in (*LIBRARIES, *OWN.get(way, ())):
        importlib.import_module(library)

    began, cpu = time.perf_counter(), time.process_time()
    try:
        with WAYS[way](f"{folder}/{name}.onnx", feed, int(memory) if memory else None) as (run, said):
            built = time.perf_counter() - began
            values = run()
            answer = {
                "built": built,
                "first": time.perf_counter() - began,
                "first_cpu": time.process_time() - cpu,
                "values": values,
                "peak": int(peak() * 2**20),
                **said,
            }
            to.write(json.dumps(answer) + "\n")
            while asked := int(sys.stdin.readline() or 0):
                began, cpu = time.perf_counter(), time.process_time()
                for _ in range(asked):
                    run()
                wall, used = time.perf_counter() - began, time.process_time() - cpu
                to.write(json.dumps({"wall": wall / asked, "cpu": used / asked}) + "\n")
            to.write(json.dumps({"peak": int(peak() * 2**20)}) + "\n")
    except Exception as error:
        to.write(json.dumps({"stopped": f"{type(error).__name__}: {error}".splitlines()[0]}) + "\n")


def _answers() -> Any:
    """The way back to the parent; from here on whatever else is printed, as peers do, is dropped."""
    kept = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return kept


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    main(*sys.argv[1:])
