"""The bodies of If, Loop and Scan of two sides, each compared from what A's holds, iteration by iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
from onnx import helper

from whynan.capture.onnx.arrays import kind_of
from whynan.capture.onnx.graph.executed import bodies_of, captured
from whynan.compare.alignment import Aligner
from whynan.compare.introduced import Search
from whynan.compare.sides.double import attributes_of
from whynan.compare.sides.onnx import OnnxSide
from whynan.compare.sides.operations import UnavailableError
from whynan.compare.sides.values import ValueStore
from whynan.compare.stretches import SideRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whynan.compare.alignment import Alignment
    from whynan.compare.sides.operations import Array, Operation
    from whynan.compare.stretches import Culprit

_ITERATIONS: Final = 10_000
_MEMORY: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Inner:
    """A culprit in a body: ``path`` is the way to it, as it stands before the name of a node."""

    culprit: Culprit
    a: SideRun
    b: SideRun
    alignment: Alignment
    path: str


def inner_culprit(a: SideRun, b: SideRun, culprit: Culprit) -> Inner | None:
    """The first operation out of line within the bodies of a node and of its partner; None where none is."""
    one, other = culprit.other.operations[-1], culprit.operation
    if not isinstance(a.side, OnnxSide) or not isinstance(b.side, OnnxSide):
        return None
    if one.op != other.op or not one.holds_bodies or not other.holds_bodies:
        return None
    try:
        for attribute, number, feeds in _iterations(a, one):
            found = _compared(a, b, (one, other), attribute, feeds)
            if found is not None:
                turn = "" if one.op == "If" else f"[{number}]"
                path = f"{other.name}/{attribute}{turn}/"
                deeper = inner_culprit(found.a, found.b, found.culprit)
                if deeper is not None:
                    return Inner(deeper.culprit, deeper.a, deeper.b, deeper.alignment, path + deeper.path)
                return Inner(found.culprit, found.a, found.b, found.alignment, path)
    except UnavailableError:
        return None
    return None


def _iterations(run: SideRun, operation: Operation) -> Iterator[tuple[str, int, list[Array]]]:
    """The bodies that A runs: the attribute, the iteration, and the inputs of the body in order."""
    side = run.side
    assert isinstance(side, OnnxSide)
    node = side.graph.nodes[operation.index]
    given = [run.value(name) if name else None for name in node.inputs]
    match node.op:
        case "If":
            taken = bool(np.asarray(given[0]).reshape(-1)[0])
            yield ("then_branch" if taken else "else_branch"), 0, []
        case "Loop":
            most = _ITERATIONS if given[0] is None else int(np.asarray(given[0]).reshape(-1)[0])
            going = np.asarray(True) if given[1] is None else given[1]
            states = [np.asarray(value) for value in given[2:]]
            number = 0
            while bool(np.asarray(going).reshape(-1)[0]) and number < most:
                feeds = [np.asarray(number, np.int64), np.asarray(going), *states]
                yield "body", number, feeds
                going, *left = _outputs(run, operation, "body", feeds)
                states, number = left[: len(states)], number + 1
        case "Scan":
            said = attributes_of(node.proto)
            if any(said.get(name) for name in ("scan_input_axes", "scan_input_directions")):
                raise UnavailableError("a Scan along other axes")
            count = len(given) - int(said["num_scan_inputs"])
            states, whole = [np.asarray(v) for v in given[:count]], [np.asarray(v) for v in given[count:]]
            for number in range(len(whole[0]) if whole else 0):
                feeds = [*states, *(array[number] for array in whole)]
                yield "body", number, feeds
                states = _outputs(run, operation, "body", feeds)[:count]
        case _:
            raise UnavailableError(node.op)


def _outputs(run: SideRun, operation: Operation, attribute: str, feeds: list[Array]) -> list[Array]:
    inner = _ran(run, operation, attribute, feeds, _around(run, operation))
    values = [inner.value(name) for name in inner.side.output_values]
    if any(value is None for value in values):
        raise UnavailableError("an output of a body is no tensor")
    return [np.asarray(value) for value in values]


def _compared(
    a: SideRun, b: SideRun, pair: tuple[Operation, Operation], attribute: str, feeds: list[Array]
) -> Inner | None:
    """The first culprit of one iteration."""
    around = _around(a, pair[0])
    ours = _ran(a, pair[0], attribute, feeds, around)
    theirs = _ran(b, pair[1], attribute, feeds, {**_around(b, pair[1]), **_renamed(a, pair, around)})
    inputs = dict(zip(theirs.side.inputs, ours.side.inputs, strict=False))
    outputs = dict(zip(theirs.side.output_values, ours.side.output_values, strict=False))
    alignment = Aligner(ours, theirs, inputs, outputs).align()
    search = Search(ours, theirs, alignment)
    found = next(search.culprits(), None)
    return None if found is None else Inner(search.localised(found), ours, theirs, alignment, "")


def _around(run: SideRun, operation: Operation) -> dict[str, Array]:
    """What the bodies of a node take from the graph around it."""
    return {name: v for name in operation.inputs if name and (v := run.value(name)) is not None}


def _renamed(a: SideRun, pair: tuple[Operation, Operation], around: Mapping[str, Array]) -> dict[str, Array]:
    """A's values by the names that B has for them: both read the same in the same order."""
    if len(pair[0].inputs) != len(pair[1].inputs):
        return {}
    return {
        there: around[here]
        for here, there in zip(pair[0].inputs, pair[1].inputs, strict=True)
        if here in around and a.side.constant(here) is None
    }


def _ran(
    run: SideRun, operation: Operation, attribute: str, feeds: list[Array], around: Mapping[str, Array]
) -> SideRun:
    side = _body_side(run, operation, attribute, feeds, around)
    free = [name for name in side.inputs if name not in around]
    values = ValueStore(_MEMORY)
    side.run({**dict(zip(free, feeds, strict=True)), **{n: around[n] for n in side.inputs if n in around}}, values)
    return SideRun(side, values)


def _body_side(
    run: SideRun, operation: Operation, attribute: str, feeds: list[Array], around: Mapping[str, Array]
) -> OnnxSide:
    """A body as a model of its own, which is given what it takes from around; constants stay constants."""
    side = run.side
    assert isinstance(side, OnnxSide)
    body = next(graph for name, graph in bodies_of(side.graph.nodes[operation.index].proto) if name == attribute)
    taken = [name for name in dict.fromkeys(captured(body)) if name in around]
    weights = [name for name in taken if side.graph.constant_of(name) is not None]
    infos = [
        onnx.ValueInfoProto(name=value.name, type=kind_of(fed)) for value, fed in zip(body.input, feeds, strict=True)
    ]
    infos += [onnx.ValueInfoProto(name=n, type=kind_of(around[n])) for n in taken if n not in weights]
    graph = helper.make_graph(
        list(body.node),
        body.name or "body",
        infos,
        list(body.output),
        [*body.initializer, *(onnx.numpy_helper.from_array(np.asarray(around[n]), n) for n in weights)],
    )
    model = onnx.ModelProto(ir_version=side.graph.model.ir_version, graph=graph)
    model.opset_import.extend(side.graph.model.opset_import)
    model.functions.extend(side.graph.model.functions)
    return OnnxSide(side.label, model, side.graph.folder, side.settings, model)
