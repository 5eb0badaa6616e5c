"""Every model that onnx tests its backends with, run bare, run by whynan, and by oracles of their own.

A bare session is made here, with ONNX Runtime's own defaults. The oracle of the values is a second session of the graph
as it is written, that returns all of them, counted with the plainest functions of NumPy.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from whynan.capture.onnx.arrays import (
    copy_value,
    kind_of,
    make_ort_value,
    read_ort_value,
    run_session,
    same_bits,
    type_of,
)
from whynan.capture.onnx.counts import Counts
from whynan.capture.onnx.engine import EngineSettings, Outcome, run
from whynan.capture.onnx.execution import BATCH, Counters, Node, Observer, RunError, SingleNodeRunner, Value
from whynan.capture.onnx.statistics import counters
from whynan.report.notes import sentence

IR, OPSET = 13, 26
"""The newest that ONNX Runtime 1.31 takes; a case that is newer is lowered, for both sides alike."""
SAMPLED = (
    "abs add attention averagepool batch_normalization bitshift cast clip concat constant conv cumsum dequantizelinear"
    " div dynamicquantizelinear einsum expand gather gemm gru identity if_ isinf layernormalization log loop lstm"
    " matmul max maxpool nonzero optionalhaselement pow qlinearconv quantizelinear reducemax reducesum reshape"
    " resize scan sequenceinsert slice softmax split string_concat stringnormalizer topk unique where"
)
"""Modules of onnx's cases; of each the last case is taken."""
TWICE = frozenset("add cast if_ loop sequenceinsert optionalhaselement".split())
"""Of these the first one too."""
EMULATED = "InsertedPrecisionFreeCast_"
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
Runner = Callable[[EngineSettings, Mapping[str, Value], Observer], Outcome]


@dataclass
class Case:
    """A model and what it is fed."""

    name: str
    proto: onnx.ModelProto
    feeds: dict[str, Value]


@dataclass
class Held:
    """What held of one case: ``refused`` by both, or which of the claims is broken."""

    refused: bool = False
    emulated: bool = False
    values: int = 0
    nodes: int = 0
    misses: list[str] = field(default_factory=list)


class Counted:
    """An observer that counts every value of the main graph, and runs each node again by itself."""

    def __init__(self) -> None:
        self.values: dict[str, Counters] = {}
        self._counts = Counts()
        self.random = False
        self.nodes = 0
        self.differently: list[str] = []
        self._alone: SingleNodeRunner | None = None

    def on_begin(self, nodes: Sequence[Node], alone: SingleNodeRunner) -> None:
        self._alone = alone

    def on_input(self, name: str, value: Value, kind: str) -> None:
        counters(value)

    def on_values(self, values: Sequence[Value]) -> None:
        self._counts.ahead(values)

    def on_node(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self.nodes += 1
        self.random |= _is_random(node)
        if not node.body:
            written = zip(node.outputs, outputs, strict=True)
            self.values |= {name: self._counts(value) for name, value in written if name}
        # an element of a batch is what the executed graph has no node for
        of_batch = bool(node.body) and node.body[-1][1] == BATCH
        if _is_random(node) or of_batch or self._alone is None:
            return
        try:
            again = self._alone(node, inputs)
        except RuntimeError as error:
            self.differently.append(f"{node.op} does not run alone: {error}")
            return
        if not all(same_bits(one, two) for one, two in zip(again, outputs, strict=True)):
            self.differently.append(f"{node.op} gives other bits alone")

    def on_body_enter(self, names: Sequence[str], values: Sequence[Value], carried: Sequence[str]) -> None:
        assert len(names) == len(values) == len(carried)

    def on_body_leave(self, names: Sequence[str], values: Sequence[Value]) -> None:
        assert len(names) == len(values)

    def on_output(self, name: str, value: Value) -> None:
        counters(value)


RANDOM = frozenset("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial".split())


def _is_random(node: Node) -> bool:
    return node.op in RANDOM or (node.op == "Dropout" and len(node.inputs) > 2 and bool(node.inputs[2]))


# -- the cases -----------------------------------------------------------------------------------------------------


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Every case of onnx's nodes, in onnx's order, and every model that lies with them."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return (*(_of_node(case) for case in found), *stored_cases())


@functools.cache
def sample() -> tuple[Case, ...]:
    """Some of the cases of the nodes, and the small models that lie with them.

    A module adds its cases to onnx's lists where it is executed: another test may have imported it already, so it is
    executed apart from `sys.modules`, and with lists of its own.
    """
    import onnx.backend.test.case.node as package

    taken: list[Case] = []
    for name in SAMPLED.split():
        spec = importlib.util.find_spec(f"{package.__name__}.{name}")
        assert spec is not None
        assert spec.loader is not None
        new: list[Any] = []
        with (
            warnings.catch_warnings(),
            mock.patch.object(package, "_NodeTestCases", new),
            mock.patch.object(package, "_existing_names", {}),
        ):
            warnings.simplefilter("ignore")
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        taken += [_of_node(case) for case in ([new[0], new[-1]] if name in TWICE else new[-1:])]
    return tuple(taken)


def stored_cases() -> tuple[Case, ...]:
    """The models that lie with onnx, with the inputs beside them, or with random ones."""
    return tuple(_stored(path) for path in sorted(DATA.rglob("*.onnx")))


def _of_node(case: Any) -> Case:
    given = case.data_sets[0][0] if case.data_sets else ()
    feeds = {i.name: _plain(value) for i, value in zip(case.model.graph.input, given, strict=False)}
    return Case(case.name, case.model, feeds)


def _plain(value: Any) -> Value:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return value if value is None or isinstance(value, list) else np.asarray(value)


def _stored(path: Path) -> Case:
    proto = onnx.load(path)
    constants = {tensor.name for tensor in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in constants]
    feeds: dict[str, Value] = {}
    for i, value in enumerate(inputs):
        beside = path.parent / "test_data_set_0" / f"input_{i}.pb"
        feeds[value.name] = _loaded(beside, value.type) if beside.exists() else _random(value.type)
    return Case(str(path.relative_to(DATA)), proto, feeds)


def _loaded(path: Path, kind: onnx.TypeProto) -> Value:
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))


def _random(kind: onnx.TypeProto) -> Value:
    shape = [d.dim_value or 1 for d in kind.tensor_type.shape.dim]
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# -- ONNX Runtime --------------------------------------------------------------------------------------------------


def holds(case: Case, folder: Path, runner: Runner = run) -> Held:
    """What whynan makes of a case on ONNX Runtime, beside a bare session and the oracle."""
    held = Held()
    path = _lowered(case, folder)
    try:
        expected = _bare(path, case.feeds)
    except Exception:
        held.refused = True
        try:
            runner(EngineSettings(path, intra_threads=1), case.feeds, Counted())
        except RunError:
            return held
        held.misses.append("runs what a bare session refuses")
        return held
    try:
        told = Counted()
        outcome = runner(EngineSettings(path, intra_threads=1), case.feeds, told)
        _compare(held, "optimised", expected, outcome, told)
        cut = runner(EngineSettings(path, intra_threads=1, memory=1), case.feeds, Counted())
        if not told.random and not _same(expected, cut.outputs):
            held.misses.append("node by node, other bits than a bare session's")
        told = Counted()
        runner(EngineSettings(path, intra_threads=1, graph="original"), case.feeds, told)
        _against_oracle(held, path, case, told)
    except RunError as error:
        held.misses.append(f"refused: {error.what}")
    return held


def _compare(held: Held, what: str, expected: Mapping[str, Value], outcome: Outcome, told: Counted) -> None:
    held.nodes += told.nodes
    held.misses += [f"{what}: {said}" for said in told.differently]
    if told.random:
        return
    if outcome.bit_equal is not True:
        held.misses.append(f"{what}: {sentence(outcome.why)}")
    if not _same(expected, outcome.outputs):
        held.misses.append(f"{what}: other bits than a bare session's")


def _same(expected: Mapping[str, Value], found: Mapping[str, Value]) -> bool:
    return list(expected) == list(found) and all(same_bits(value, found[name]) for name, value in expected.items())


def _lowered(case: Case, folder: Path) -> str:
    proto = onnx.ModelProto()
    proto.CopyFrom(case.proto)
    proto.ir_version = min(proto.ir_version, IR)
    for entry in proto.opset_import:
        if not entry.domain:
            entry.version = min(entry.version, OPSET)
    path = folder / "case.onnx"
    path.write_bytes(proto.SerializeToString())
    return str(path)


def _session(model: Any, *, optimised: bool) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _bare(path: str, feeds: Mapping[str, Value]) -> dict[str, Value]:
    return _fetched(_session(path, optimised=True), feeds)


def _fetched(session: Any, feeds: Mapping[str, Value]) -> dict[str, Value]:
    """The outputs of a session, through NumPy where that knows all the types, else through the engine's memory."""
    names = [output.name for output in session.get_outputs()]
    kinds = {i.name: i.type for i in session.get_inputs()}
    unknown = any(
        t in str(o.type) for o in session.get_outputs() for t in ("float8", "float4", "bfloat16", "int4", "int2")
    )
    exotic = unknown or any(
        not _is_numpys(np.asarray(v)) for v in feeds.values() if v is not None and not isinstance(v, list)
    )
    if not exotic:
        try:
            return dict(zip(names, session.run(names, dict(feeds)), strict=True))
        except RuntimeError as error:
            if "No corresponding Numpy type" not in str(error):
                raise
    given = {
        name: make_ort_value(value, type_of(kinds[name]) if name in kinds else kind_of(value))
        for name, value in feeds.items()
    }
    return {
        name: copy_value(read_ort_value(value))
        for name, value in zip(names, run_session(session, names, given), strict=True)
    }


def _is_numpys(array: Any) -> bool:
    return array.dtype.type.__module__ == "numpy"


def _against_oracle(held: Held, path: str, case: Case, told: Counted) -> None:
    """Every value of the graph as it is written, from a session that returns them all."""
    proto = onnx.load(path)
    if proto.functions or told.random:
        return
    if any(name.startswith(EMULATED) for name in told.values):
        # to return a value of float16 the engine must round it, which it otherwise does not: there is no oracle
        held.emulated = True
        return
    known = {output.name for output in proto.graph.output}
    names = dict.fromkeys(name for node in proto.graph.node for name in node.output if name and name not in known)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    values = _fetched(_session(proto.SerializeToString(), optimised=False), case.feeds)
    written = {name for node in proto.graph.node for name in node.output}
    for name, value in values.items():
        if name not in written or not isinstance(value, np.ndarray):
            continue
        found = told.values.get(name)
        if found is None:
            if not _is_constant(proto, name):
                held.misses.append(f"the value {name} was not told of")
            continue
        held.values += 1
        plain = plainly(value)
        if found != plain:
            held.misses.append(f"{name}: {found} where the oracle has {plain}")


def _is_constant(proto: onnx.ModelProto, name: str) -> bool:
    return any(node.op_type == "Constant" and name in node.output for node in proto.graph.node)


def plainly(array: Any) -> Counters:
    """Counters by NumPy's plainest functions."""
    if array.dtype.kind in "OUS":
        return Counters("string", array.shape, 0)
    name, flat = array.dtype.name, array.reshape(-1)
    if array.size == 0:
        return Counters(name, array.shape, 0)
    if array.dtype.kind in "iub":
        low, high, zero = int(flat.min()), int(flat.max()), int((flat == 0).sum())
        return Counters(name, array.shape, flat.size, n_zero=zero, finite_min=low, finite_max=high)
    numbers = flat if array.dtype.kind == "f" and _is_numpys(array) else flat.astype(np.float64)
    import ml_dtypes

    whole = name.startswith(("int", "uint"))
    tiny = 0.0 if whole else float(ml_dtypes.finfo(array.dtype).smallest_normal)
    finite = numbers[np.isfinite(numbers)]
    return Counters(
        name,
        array.shape,
        n=flat.size,
        n_nan=int(np.isnan(numbers).sum()),
        n_posinf=int(np.isposinf(numbers).sum()),
        n_neginf=int(np.isneginf(numbers).sum()),
        n_zero=int((numbers == 0).sum()),
        n_subnormal=int(((np.abs(numbers) < tiny) & (numbers != 0)).sum()),
        finite_min=float(np.min(finite)) if finite.size else None,
        finite_max=float(np.max(finite)) if finite.size else None,
    )


# -- onnx's reference ----------------------------------------------------------------------------------------------


def holds_in_reference(case: Case, folder: Path, runner: Runner = run) -> Held:
    """What whynan makes of a case with onnx's reference evaluator, beside the evaluator itself."""
    held = Held()
    path = folder / "case.onnx"
    path.write_bytes(case.proto.SerializeToString())
    settings = EngineSettings(str(path), graph="original", engine="reference")
    told = Counted()
    try:
        with np.errstate(all="ignore"):
            expected: Any = ReferenceEvaluator(case.proto).run(None, dict(case.feeds), intermediate=True)
    except Exception:
        held.refused = True
        try:
            runner(settings, case.feeds, told)
        except RunError:
            return held
        held.misses.append("runs what the evaluator refuses")
        return held
    try:
        outcome = runner(settings, case.feeds, told)
    except RunError as error:
        held.misses.append(f"refused: {error.what}")
        return held
    held.nodes += told.nodes
    held.misses += told.differently
    if told.random:
        return held
    # a run that takes long is not made once more by whynan; it is here, in any case
    if outcome.bit_equal is False or (outcome.bit_equal is None and outcome.why.kind != "slow_run"):
        held.misses.append(sentence(outcome.why))
    if not all(same_bits(expected[name], value) for name, value in outcome.outputs.items()):
        held.misses.append("other bits than the evaluator's")
    for name, found in told.values.items():
        if isinstance(expected.get(name), np.ndarray):
            held.values += 1
            if found != plainly(expected[name]):
                held.misses.append(f"{name}: {found} where the evaluator has {plainly(expected[name])}")
    return held
