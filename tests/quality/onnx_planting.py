"""A bad number planted into one element of one value of an ONNX model, by a node that is put behind its writer."""

from __future__ import annotations

import os
import random
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.onnx_doubles import NoSites, counters_of
from tests.onnx_engine import bare, run
from whynan.analysis import judge_births
from whynan.capture.onnx import engine
from whynan.capture.onnx.provenance.observer import BirthObserver
from whynan.capture.onnx.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from whynan.analysis import Findings

PLANTED = "planted"
HUGE = np.float32(3e38)
Path = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Candidate:
    """A value that may be overwritten: the body that it stands in, its name and shape, and where it is not finite."""

    path: Path
    name: str
    shape: tuple[int, ...]
    bad: frozenset[tuple[int, ...]] = frozenset()


@dataclass(frozen=True)
class Plant:
    """One overwrite: a remainder of a division by 0 is NaN, a quotient Inf of the sign of the element and the zero."""

    candidate: Candidate
    index: tuple[int, ...]
    how: str

    def divisor(self) -> Any:
        """The second operand of the node: harmless but in one place."""
        made = np.full(self.candidate.shape, HUGE if self.how == "nan" else np.float32(1), np.float32)
        made[self.index] = np.float32(-0.0) if self.how == "-inf" else np.float32(0)
        return made


class Shapes:
    """An observer that notes which values there are."""

    def __init__(self) -> None:
        self.found: dict[tuple[Path, str], Candidate] = {}

    def on_begin(self, *_: Any) -> None: ...
    def on_input(self, *_: Any) -> None: ...
    def on_values(self, *_: Any) -> None: ...
    def on_body_enter(self, *_: Any) -> None: ...
    def on_body_leave(self, *_: Any) -> None: ...
    def on_output(self, *_: Any) -> None: ...

    def on_node(self, node: Any, _inputs: Any, outputs: Any) -> None:
        path = tuple((holder, attribute) for holder, attribute, _ in node.body)
        for name, value in zip(node.outputs, outputs, strict=True):
            if name and isinstance(value, np.ndarray) and value.dtype == np.float32 and value.size:
                bad = frozenset(tuple(map(int, index)) for index in np.argwhere(~np.isfinite(value)))
                self.found[(path, name)] = Candidate(path, name, value.shape, bad)


def candidates(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Candidate]:
    """Every value of a float32 model that a node writes, in bodies too."""
    shapes = Shapes()
    run(model, feeds, shapes)
    live = set(feeds)
    for node in model.graph.node:
        if live & set(node.input) or any(a.HasField("g") for a in node.attribute):
            live.update(node.output)
    # what depends on no input is computed when the model is loaded, and no node of it is executed
    return [c for c in shapes.found.values() if c.path or c.name in live]


def draw(found: list[Candidate], seed: int, count: int) -> list[Plant]:
    """So many overwrites, of different values where there are as many."""
    chosen = random.Random(seed)
    picked = chosen.sample(found, min(count, len(found)))
    while len(picked) < count:
        picked.append(chosen.choice(found))
    plants: list[Plant] = []
    for i, candidate in enumerate(picked):
        index = _element(candidate, chosen)
        # an infinity has no remainder
        ways = ("inf", "-inf") if candidate.bad else ("nan", "inf", "-inf")
        plants.append(Plant(candidate, index, ways[i % len(ways)]))
    return plants


def _element(candidate: Candidate, chosen: random.Random) -> tuple[int, ...]:
    """A finite element."""
    while True:
        index = tuple(chosen.randrange(s) for s in candidate.shape)
        if index not in candidate.bad:
            return index


def planted(model: onnx.ModelProto, plant: Plant) -> onnx.ModelProto:
    """The model with the overwriting node, whose result takes the name of the value."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    for holder, attribute in plant.candidate.path:
        node = next(n for n in graph.node if n.name == holder)
        graph = next(a.g for a in node.attribute if a.name == attribute)
    name = plant.candidate.name
    nodes = list(graph.node)
    at = next(i for i, n in enumerate(nodes) if name in n.output)
    clean = f"{name}/clean"
    for i, output in enumerate(nodes[at].output):
        if output == name:
            nodes[at].output[i] = clean
    attributes = {"fmod": 1} if plant.how == "nan" else {}
    added = helper.make_node(
        "Mod" if plant.how == "nan" else "Div", [clean, f"{PLANTED}/divisor"], [name], name=PLANTED, **attributes
    )
    # `graph.node` is only replaced after its nodes have been copied
    kept = [*map(_copy, nodes[: at + 1]), added, *map(_copy, nodes[at + 1 :])]
    del graph.node[:]
    graph.node.extend(kept)
    made.graph.initializer.append(numpy_helper.from_array(plant.divisor(), f"{PLANTED}/divisor"))
    if made.opset_import[0].version < 10:
        made.opset_import[0].version = 10
    return made


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    return made


@dataclass(frozen=True)
class Outcome:
    """One planting: whether the bare session's outputs turn bad, and the reason for a miss, if it is one."""

    plant: Plant
    bad: bool
    same: bool
    verdict: str
    miss: str | None

    def __str__(self) -> str:
        at = self.plant.candidate
        where = "/".join(holder for holder, _ in at.path)
        state = "bad" if self.bad else "same" if self.same else "finite"
        return f"{where} {at.name} {list(self.plant.index)} <- {self.plant.how}; outputs {state}: {self.miss}"


def traced(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Findings:
    """What is found in a run of a model by the engine of these tests."""
    births = BirthObserver(Recorder(), NoSites(), ranges=False, count=counters_of)
    run(model, feeds, births)
    return judge_births(births.end())


def as_executed(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Findings:
    """What is found in the graph that ONNX Runtime executes, as it is explained: not in blocks of channels."""
    births = BirthObserver(Recorder(), NoSites(), ranges=True)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(model, path)
        engine.run(engine.EngineSettings(path=path, disabled_optimizers=("NchwcTransformer",)), feeds, births)
    return judge_births(births.end())


def judge(
    model: onnx.ModelProto,
    feeds: Mapping[str, Any],
    plant: Plant,
    watch: Callable[[onnx.ModelProto, Mapping[str, Any]], Findings] = traced,
) -> Outcome:
    """Plant, and compare what is found with what a bare session shows."""
    spoilt = planted(model, plant)
    healthy, outputs = bare(model, feeds), bare(spoilt, feeds)
    bad = any(not np.isfinite(value).all() for value in outputs.values())
    same = all(value.tobytes() == outputs[name].tobytes() for name, value in healthy.items())
    found = watch(spoilt, feeds)
    return Outcome(plant, bad, same, found.verdict, _miss(found, plant, bad=bad, same=same))


def _miss(found: Findings, plant: Plant, *, bad: bool, same: bool) -> str | None:
    errors = [f for f in found.escaped if f.severity == "error"]
    if not bad:
        if errors:
            return f"an error where nothing is bad: {errors[0].op} {errors[0].node}"
        return f"{found.verdict}, though the outputs are the same bits" if same and found.verdict != "clean" else None
    if found.verdict != "nonfinite":
        return f"verdict {found.verdict}"
    if len(errors) != 1:
        return f"{len(errors)} errors: {', '.join(str(f.node) for f in errors)}"
    (finding,) = errors
    if finding.node is None or finding.node.rpartition("/")[2] != PLANTED:
        return f"named {finding.node}"
    if _path(finding.node) != [name for pair in plant.candidate.path for name in pair]:
        return f"in another body: {finding.node}"
    if finding.element.index != plant.index:
        return f"element {finding.element.index}"
    value = finding.element.value
    if value is None or (plant.how == "nan" and value == value):
        return f"value {value}"
    return None


def _path(node: str) -> list[str]:
    return list(_parts(node))


def _parts(node: str) -> Iterator[str]:
    for part in node.split("/")[:-1]:
        yield part.partition("[")[0]
