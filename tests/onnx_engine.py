"""An engine for tests: ONNX Runtime on the graph as it stands, every value an output of it, bodies run beside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from whynan.capture.onnx.execution import Node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.capture.onnx.execution import Observer

Values = dict[str, Any]


def bare(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Values:
    """The outputs of a session that nobody looks at."""
    outputs = [o.name for o in model.graph.output]
    return dict(zip(outputs, _session(model).run(outputs, dict(feeds)), strict=True))


def run(model: onnx.ModelProto, feeds: Mapping[str, Any], observer: Observer) -> Values:
    """Run a model and tell an observer of everything; gives the outputs."""
    return _Run(model, observer).main(dict(feeds))


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _typed(name: str, value: Any) -> onnx.ValueInfoProto:
    array = np.asarray(value)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


@dataclass
class _Run:
    model: onnx.ModelProto
    observer: Observer
    sessions: dict[Any, Any] = field(default_factory=dict)

    def main(self, feeds: Values) -> Values:
        graph = self.model.graph
        nodes = self.nodes(graph, ())
        self.observer.on_begin(nodes, self.alone)
        held: Values = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
        for name, value in held.items():
            if name not in feeds:
                self.observer.on_input(name, value, "initializer")
        held |= feeds
        for name, value in feeds.items():
            self.observer.on_input(name, value, "input")
        self.graph(graph, nodes, held, ())
        for output in graph.output:
            self.observer.on_output(output.name, held[output.name])
        return {output.name: held[output.name] for output in graph.output}

    def nodes(self, graph: onnx.GraphProto, body: tuple[tuple[str, str, int], ...]) -> list[Node]:
        opsets = {o.domain: o.version for o in self.model.opset_import}
        return [
            Node(
                i,
                p.name,
                p.op_type,
                p.domain,
                tuple(p.input),
                tuple(p.output),
                p,
                body=body,
                opset=opsets.get(p.domain),
            )
            for i, p in enumerate(graph.node)
        ]

    def graph(self, graph: onnx.GraphProto, nodes: list[Node], held: Values, body: Any) -> None:
        """Run all nodes of one level in one session, and tell of them in order."""
        values = self.outputs(graph, held, body)
        for node in nodes:
            found = [values.get(name) if name else None for name in node.outputs]
            held.update({name: value for name, value in zip(node.outputs, found, strict=True) if name})
            inputs = [held[name] if name else None for name in node.inputs]
            if node.op == "If":
                branch = "then_branch" if bool(np.asarray(inputs[0])) else "else_branch"
                self.iteration(node, branch, 0, [], [], held)
            elif node.op == "Loop":
                self.loop(node, inputs, held)
            elif node.op == "Scan":
                self.scan(node, inputs, held)
            self.observer.on_node(node, inputs, found)

    def outputs(self, graph: onnx.GraphProto, held: Values, body: Any) -> Values:
        """Every value of a graph; `held`: its inputs and initialisers, and all that it may read from around it."""
        own = {i.name for i in graph.initializer}
        read = _read(graph) & set(held) - own
        names = [name for node in graph.node for name in node.output if name]
        if not names:
            return {}
        level = tuple((holder, attribute) for holder, attribute, _ in body)
        key = (level, tuple(sorted((n, str(np.asarray(held[n]).dtype), np.asarray(held[n]).shape) for n in read)))
        session = self.sessions.get(key)
        if session is None:
            made = helper.make_graph(
                list(graph.node),
                "level",
                [_typed(name, held[name]) for name in sorted(read)],
                [onnx.ValueInfoProto(name=name) for name in names],
                list(graph.initializer),
            )
            session = self.sessions[key] = _session(self.whole(made))
        return dict(zip(names, session.run(names, {name: held[name] for name in read}), strict=True))

    def whole(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        return helper.make_model(graph, opset_imports=self.model.opset_import, ir_version=10)

    def loop(self, node: Node, inputs: Sequence[Any], held: Values) -> None:
        body = next(a.g for a in node.proto.attribute if a.name == "body")
        limit = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(()))
        going = True if inputs[1] is None else bool(np.asarray(inputs[1]))
        states, names = list(inputs[2:]), list(node.inputs[2:])
        formal = [i.name for i in body.input]
        iteration = 0
        while going and (limit is None or iteration < limit):
            fed = [np.array(iteration, np.int64), np.array(going), *states]
            given = ["", "", *names]
            found = self.iteration(node, "body", iteration, formal, list(zip(fed, given, strict=True)), held)
            going, states = bool(np.asarray(found[0])), found[1 : 1 + len(states)]
            names = [o.name for o in body.output][1 : 1 + len(states)]
            iteration += 1

    def scan(self, node: Node, inputs: Sequence[Any], held: Values) -> None:
        body = next(a.g for a in node.proto.attribute if a.name == "body")
        scanned = next(a.i for a in node.proto.attribute if a.name == "num_scan_inputs")
        count = len(inputs) - scanned
        states, names = list(inputs[:count]), list(node.inputs[:count])
        formal = [i.name for i in body.input]
        for iteration in range(inputs[count].shape[0]):
            fed = [*zip(states, names, strict=True)]
            fed += [(v[iteration], n) for v, n in zip(inputs[count:], node.inputs[count:], strict=True)]
            found = self.iteration(node, "body", iteration, formal, fed, held)
            states, names = found[:count], [o.name for o in body.output][:count]

    def iteration(self, node: Node, attribute: str, number: int, formal: Any, fed: Any, held: Values) -> list[Any]:
        body = next(a.g for a in node.proto.attribute if a.name == attribute)
        inner = {**held, **{i.name: numpy_helper.to_array(i) for i in body.initializer}}
        inner |= {name: value for name, (value, _) in zip(formal, fed, strict=True)}
        self.observer.on_body_enter(formal, [v for v, _ in fed], [n for _, n in fed])
        path = (*node.body, (node.name, attribute, number))
        self.graph(body, self.nodes(body, path), inner, path)
        names = [o.name for o in body.output]
        found = [inner[name] for name in names]
        self.observer.on_body_leave(names, found)
        return found

    def alone(self, node: Node, inputs: Sequence[Any]) -> list[Any]:
        """One node by itself."""
        if any(isinstance(v, list) for v in inputs):
            raise RuntimeError("not on sequences")
        proto = onnx.NodeProto()
        proto.CopyFrom(node.proto)
        for i, name in enumerate(node.inputs):
            # one name may be two values now
            proto.input[i] = f"i{i}" if name else ""
        named = {f"i{i}": np.asarray(v) for i, v in enumerate(inputs) if v is not None and node.inputs[i]}
        names = [name for name in node.outputs if name]
        level = tuple((holder, attribute) for holder, attribute, _ in node.body)
        key = (level, node.index, tuple((k, str(v.dtype), v.shape) for k, v in named.items()))
        session = self.sessions.get(key)
        if session is None:
            graph = helper.make_graph(
                [proto],
                "alone",
                [_typed(name, value) for name, value in named.items()],
                [onnx.ValueInfoProto(name=name) for name in names],
            )
            try:
                session = self.sessions[key] = _session(self.whole(graph))
            except Exception as error:
                raise RuntimeError(str(error)) from error
        try:
            found = dict(zip(names, session.run(names, named), strict=True))
        except Exception as error:
            raise RuntimeError(str(error)) from error
        return [found.get(name) for name in node.outputs]


def _read(graph: onnx.GraphProto) -> set[str]:
    """All names that a graph reads, its bodies included."""
    found: set[str] = {output.name for output in graph.output}
    for node in graph.node:
        found |= set(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _read(attribute.g)
    return found - {""}


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """A model of these nodes; `inputs` are the values that it will be fed."""
    held = {name: np.asarray(value) for name, value in (constants or {}).items()}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [_typed(name, value) for name, value in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )


FLOAT = TensorProto.FLOAT
