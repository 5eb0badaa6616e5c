"""onnx's own reference evaluator, looked at node by node: slow, and true to the dtype of each operation.

The evaluator itself runs; each of its nodes is only stood in for by one that runs it and tells of it. What happens in
a local function, or in an operator that the evaluator has as one, is not told of: its call is one node.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from whynan.capture.onnx.arrays import copy_value, engine_message
from whynan.capture.onnx.control_flow import called, carried_names
from whynan.capture.onnx.execution import Outcome, RunError
from whynan.capture.onnx.graph.executed import Executable, bodies_of
from whynan.capture.onnx.statistics import digest
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from whynan.capture.onnx.execution import Node, Observer, Value
    from whynan.capture.onnx.sessions import EngineSettings

_PATIENCE: Final = 10.0
"""Seconds of a run that is made once more, to compare its outputs with."""


class Reference:
    """A model opened on onnx's ReferenceEvaluator; raises ``RunError`` where it refuses the model."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self._teller = _EvaluatorListener()
        try:
            self._model = cast("Any", onnx).load(settings.path)
            self._evaluator = _listening_evaluator(self._teller)(self._model)
        except Exception as error:
            raise RunError(_words(error), 0) from None
        self._graph = Executable(self._model, cast("Path", None))

    @property
    def executed_model(self) -> onnx.ModelProto:
        """The graph that runs: the model as it is written."""
        return self._model

    def close(self) -> None:
        """Nothing is open."""

    def run(self, feeds: Mapping[str, Value], observer: Observer, *, compare: bool = True) -> Outcome:
        """Run it and tell the observer of all that it comes to; raises ``RunError`` where the evaluator refuses."""
        teller = self._teller
        teller.begin_run(observer, self._evaluator, self._graph)
        observer.on_begin(self._graph.nodes, teller.run_single_node)
        for name, value in feeds.items():
            observer.on_input(name, value, "input")
        began = time.monotonic()
        outputs = _run(self._evaluator, feeds, teller)
        took = time.monotonic() - began
        teller.report_constants(self._graph, self._evaluator)
        for name, value in outputs.items():
            observer.on_output(name, value)
        bit_equal, why = self._compared(feeds, outputs, took) if compare else (None, Note.create("not_compared"))
        return Outcome(
            outputs=outputs,
            bit_equal=bit_equal,
            why=why,
            nodes=len(self._graph.nodes),
            nodes_as_written=len(self._graph.nodes),
            segments=1,
            placement={},
            notes=(),
            executed=self._model,
        )

    def _compared(
        self, feeds: Mapping[str, Value], outputs: Mapping[str, Value], took: float
    ) -> tuple[bool | None, Note]:
        if took > _PATIENCE:
            return None, Note.create("slow_run", seconds=took)
        bare = _run(ReferenceEvaluator(self._model), feeds, None)
        different = [name for name, value in bare.items() if digest(value) != digest(outputs[name])]
        if different:
            again = _run(ReferenceEvaluator(self._model), feeds, None)
            if any(digest(value) != digest(again[name]) for name, value in bare.items()):
                return None, Note.create("runs_differ", engine="evaluator")
            return False, Note.create("bits_differ", engine="evaluator", outputs=tuple(different))
        return True, Note.create("bits_equal", engine="evaluator", outputs=len(bare))


class _EvaluatorListener:
    """Who is told of what the evaluators of one model do; they run one within the other."""

    def __init__(self) -> None:
        self.observer: Observer | None = None
        self.nodes = 0
        self._graphs: dict[int, Executable] = {}
        self._holders: list[_Holder] = []
        self._told: set[str] = set()
        self._silent = 0
        self._context: Any = None
        self._stand_ins: dict[int, _StandIn] = {}

    def begin_run(self, observer: Observer, evaluator: Any, graph: Executable) -> None:
        """A run of the main graph begins."""
        self.observer = observer
        self.nodes = 0
        self._graphs = {id(evaluator): graph}
        self._holders, self._told, self._silent = [], set(), 0

    def run_node(self, evaluator: Any, stand_in: _StandIn, inputs: Sequence[Any], given: dict[str, Any]) -> Any:
        """Run a node of an evaluator, and tell of it."""
        graph = self._graphs.get(id(evaluator))
        observer = self.observer
        if graph is None or observer is None or self._silent:
            return stand_in.real.run(*inputs, **given)
        node: Node = graph.nodes[stand_in.index]
        if self._holders:
            holder = self._holders[-1]
            node = _within(node, (*holder.node.body, (called(holder.node), holder.attribute, holder.iteration)))
        self._enter(graph, graph.reads[node.index], evaluator)
        self._stand_ins[id(node.proto)] = stand_in
        if bodies_of(node.proto):
            self._holders.append(_Holder(node, graph, stand_in.real))
            try:
                outputs = stand_in.real.run(*inputs, **given)
            finally:
                self._holders.pop()
        else:
            outputs = stand_in.real.run(*inputs, **given)
        self._context = given.get("context")
        by_name = [*outputs, *[None] * (len(node.outputs) - len(outputs))]
        observer.on_node(node, list(inputs), [v if n else None for n, v in zip(node.outputs, by_name, strict=False)])
        if not node.body:
            self.nodes += 1
        return outputs

    def evaluates(self, evaluator: Any, feeds: Mapping[str, Any], run: Any) -> Any:
        """Run a body or a function, and tell of the body."""
        observer = self.observer
        holder = self._holders[-1] if self._holders else None
        if id(evaluator) in self._graphs and not self._holders and not self._silent:
            return run()
        attribute = None if holder is None or self._silent else _attribute_of(holder.real, evaluator)
        if observer is None or holder is None or attribute is None:
            self._silent += 1
            try:
                return run()
            finally:
                self._silent -= 1
        if attribute != holder.attribute:
            holder.attribute, holder.iteration = attribute, -1
        holder.iteration += 1
        body = holder.graph.body(holder.node, attribute)
        self._graphs[id(evaluator)] = body
        formal = list(body.inputs)
        carried = carried_names(holder.node, body, holder.iteration)
        observer.on_body_enter(formal, [feeds.get(name) for name in formal], carried)
        outputs = run()
        self.report_constants(body, evaluator)
        observer.on_body_leave(list(body.outputs), list(outputs))
        return outputs

    def report_constants(self, graph: Executable, evaluator: Any) -> None:
        """Tell of the constants that a graph gives as they are."""
        self._enter(graph, [name for name, _ in graph.constants_left], evaluator)

    def run_single_node(self, node: Node, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of one node on other values; raises ``RuntimeError`` where that cannot be done."""
        stand_in = self._stand_ins.get(id(node.proto))
        if stand_in is None:
            raise RuntimeError(f"{node.op} {node.name} has not run")
        given: dict[str, Any] = {}
        if stand_in.real.need_context():
            given["context"] = dict(self._context or {})
        self._silent += 1
        try:
            with np.errstate(all="ignore"):
                outputs = list(stand_in.real.run(*inputs, **given))
        except Exception as error:
            raise RuntimeError(_words(error)) from None
        finally:
            self._silent -= 1
        outputs += [None] * (len(node.outputs) - len(outputs))
        return [copy_value(v) if n else None for n, v in zip(node.outputs, outputs, strict=False)]

    def _enter(self, graph: Executable, names: Iterable[str], evaluator: Any) -> None:
        for name in names:
            found = graph.constant_of(name)
            if found is not None and name not in self._told and name not in graph.inputs:
                self._told.add(name)
                value = evaluator.rt_inits_.get(name)
                cast("Observer", self.observer).on_input(
                    name, found[0].array(name) if value is None else value, "initializer"
                )


class _Holder:
    """A node whose bodies run now, and the iteration that they are in."""

    def __init__(self, node: Node, graph: Executable, real: Any) -> None:
        self.node = node
        self.graph = graph
        self.real = real
        self.attribute = ""
        self.iteration = -1


class _StandIn:
    """Stands in an evaluator for one of its nodes."""

    def __init__(self, real: Any, evaluator: Any, index: int, teller: _EvaluatorListener) -> None:
        self.real = real
        self.index = index
        self._evaluator = evaluator
        self._teller = teller

    def run(self, *inputs: Any, **given: Any) -> Any:
        """Run the node, and tell of it."""
        return self._teller.run_node(self._evaluator, self, inputs, given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def _listening_evaluator(teller: _EvaluatorListener) -> type[Any]:
    """The evaluator, in a class of its own: it makes those of bodies and functions of the same class."""

    class Told(ReferenceEvaluator):
        def _init(self) -> None:
            super()._init()
            held: Any = self
            held.rt_nodes_ = [_StandIn(node, self, i, teller) for i, node in enumerate(held.rt_nodes_)]

        def run(self, output_names: Any, feed_inputs: Any, *more: Any, **named: Any) -> Any:
            return teller.evaluates(
                self, feed_inputs, lambda: cast("Any", super(Told, self)).run(output_names, feed_inputs, *more, **named)
            )

    return Told


def _run(evaluator: Any, feeds: Mapping[str, Value], teller: _EvaluatorListener | None) -> dict[str, Value]:
    try:
        with np.errstate(all="ignore"):
            found: Any = evaluator.run(None, dict(feeds))
    except Exception as error:
        raise RunError(_words(error), 0 if teller is None else teller.nodes) from None
    return {str(name): copy_value(value) for name, value in zip(evaluator.output_names, found, strict=True)}


def _attribute_of(real: Any, evaluator: Any) -> str | None:
    """The attribute of a node that an evaluator runs."""
    names = [name for name, _ in bodies_of(real.onnx_node)]
    return next((name for name in names if getattr(real, name, None) is evaluator), None)


def _within(node: Node, body: tuple[tuple[str, str, int], ...]) -> Node:
    return dataclasses.replace(node, body=body)


def _words(error: Exception) -> str:
    return engine_message(error) or type(error).__name__
