"""An ONNX model as a side: run on ONNX Runtime in stretches, every value kept; each node can be run by itself."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

from whynan.capture.onnx.arrays import copy_value, engine_message, kind_of, make_ort_value, read_ort_value, run_session
from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.graph.executed import Executable, bodies_of, tap_nodes
from whynan.capture.onnx.graph.sites import Sites, with_module
from whynan.capture.onnx.sessions import open_exact_session
from whynan.compare.sides.double import doubled_node, doubled_value, kept_single
from whynan.compare.sides.kernels import KERNELS
from whynan.compare.sides.operations import Operation, UnavailableError
from whynan.ops.table import ONNX
from whynan.source.exporter_metadata import FX_NODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from whynan.capture.onnx.execution import Node
    from whynan.capture.onnx.sessions import EngineSettings
    from whynan.compare.sides.operations import Array
    from whynan.compare.sides.values import ValueStore
    from whynan.records import Site

_STRETCH: Final = 64
"""Nodes that run in one session."""
_MOST_SESSIONS: Final = 256
_ELEMENTWISE: Final = ONNX.having("pointwise", "reshape", "movement", "form")
_WEIGHTS: Final = "session.model_external_initializers_file_folder_path"
_NAMED: Final = re.compile(r"%([A-Za-z_][A-Za-z0-9_]*)")


class OnnxSide:
    """A model as a side.

    Args:
        label: what the user calls it.
        model: the graph that is run, with its weights in files of `folder`, where they are large.
        written: the model as it was written, of which `model` may be an optimised form.
    """

    kind: Literal["onnx", "torch"] = "onnx"
    roundoff: float | None = None

    def __init__(
        self, label: str, model: onnx.ModelProto, folder: Path, settings: EngineSettings, written: onnx.ModelProto
    ) -> None:
        self.label = label
        self.settings = settings
        self.graph = Executable(model, folder)
        self._written = written
        settings.session_config[_WEIGHTS] = str(folder)
        self.aliases: Mapping[str, str] = {}
        self.inputs: tuple[str, ...] = tuple(n for n in self.graph.inputs if not self.graph.is_constant(n))
        self.input_values, self.outputs = self.inputs, self.graph.outputs
        self.output_values = self.outputs
        self.operations: Sequence[Operation] = tuple(
            self._operation(node) for node in self.graph.nodes if node.op != "Constant"
        )
        self._sessions: dict[Any, Any] = {}
        self._exact: dict[Any, Any] = {}

    @cached_property
    def _constants(self) -> dict[str, Array]:
        """What nodes of the type Constant hold."""
        found: dict[str, Array] = {}
        for node in self.graph.nodes:
            if node.op == "Constant" and (array := _held(node.proto)) is not None:
                found[node.outputs[0]] = array
        return found

    @cached_property
    def _sites(self) -> Sites:
        return Sites(self._written, self.graph.model)

    def constant(self, name: str) -> Array | None:
        """An initialiser, or what a Constant holds."""
        if self.graph.is_constant(name):
            return self.graph.array(name)
        return self._constants.get(name)

    def site(self, operation: Operation) -> Site | None:
        """The PyTorch line of a node."""
        node = self.graph.nodes[operation.index]
        place = self._sites.site(node, next((name for name in node.outputs if name), ""))
        return with_module(place.site, place.module)

    def run(self, feeds: Mapping[str, Array], values: ValueStore) -> None:
        """Run it once, and keep every value; raises ``UnavailableError``."""
        alive: dict[str, Any] = dict(feeds)
        for name, value in feeds.items():
            values.keep(name, value)
        for begin in range(0, len(self.graph.nodes), _STRETCH):
            end = min(begin + _STRETCH, len(self.graph.nodes))
            for name, value in self._stretch(begin, end, alive).items():
                alive[name] = value
                if isinstance(value, np.ndarray):
                    values.keep(name, cast("Array", value))
            for index in range(begin, end):
                for name in self.graph.over[index]:
                    alive.pop(name, None)

    def _stretch(self, begin: int, end: int, alive: Mapping[str, Any]) -> dict[str, Any]:
        read = {name for index in range(begin, end) for name in self.graph.reads[index]}
        given = {name: alive[name] for name in read if name in alive}
        tapped = tap_nodes(self.graph, begin, end, {name: kind_of(value) for name, value in given.items()})
        session = self._opened(tapped.model.SerializeToString())
        fed = {name: given[name] for name in tapped.feeds}
        return dict(zip(tapped.values, self._ran(session, tapped.values, fed), strict=True))

    def evaluate(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """A node on other operands, on the engine."""
        given: dict[str, Array] = {}
        for name in self.graph.reads[operation.index]:
            value = operands[name] if name in operands else self._constants.get(name)
            if value is not None:
                given[name] = value
        try:
            kinds = {name: kind_of(value) for name, value in given.items()}
        except RuntimeError as error:
            # of an empty sequence nobody knows the type any more
            raise UnavailableError(str(error)) from None
        key = operation.index, tuple((name, kind.SerializeToString()) for name, kind in kinds.items())
        if key not in self._sessions:
            tapped = tap_nodes(self.graph, operation.index, operation.index + 1, kinds)
            if len(self._sessions) >= _MOST_SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[key] = self._opened(tapped.model.SerializeToString()), tapped
        session, tapped = self._sessions[key]
        return self._ran(session, [n for n in operation.outputs if n], {name: given[name] for name in tapped.feeds})

    def exact(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """A node in float64: by its kernel of this program, else ONNX Runtime's, else the reference evaluator's."""
        node = self.graph.nodes[operation.index]
        given: dict[str, Array] = {}
        for name in self.graph.reads[node.index]:
            value = operands[name] if name in operands else self.constant(name)
            if value is None:
                raise UnavailableError(f"{name} is not known")
            given[name] = value
        single = {node.inputs[n] for n in kept_single(node.op) if n < len(node.inputs)}
        given = {n: v if n in single else doubled_value(v) for n, v in given.items()}
        kernel = None if node.domain not in ("", "ai.onnx", "com.microsoft") else KERNELS.get(node.op)
        try:
            found = None if kernel is None else kernel(node.proto, [given.get(name) for name in node.inputs])
        except ValueError as error:
            raise UnavailableError(str(error)) from None
        if found is not None:
            return found
        return self._exact_by_engine(node, given)

    def _exact_by_engine(self, node: Node, given: dict[str, Array]) -> list[Array]:
        kinds = tuple((name, value.dtype.str, value.ndim) for name, value in given.items())
        key = node.index, kinds
        names = [name for name in node.outputs if name]
        opened = self._exact.get(key)
        if opened is None:
            opened = self._exact[key] = self._double_session(node, given)
        if isinstance(opened, str):
            raise UnavailableError(opened)
        with np.errstate(all="ignore"):
            try:
                return [np.asarray(value) for value in opened.run(names, given)]
            except Exception as error:
                # the engine may have no kernel, and say so only when it runs
                other = None if hasattr(opened, "rt_nodes_") else _evaluator(self._double_model(node, given))
                self._exact[key] = other or engine_message(error)
        return self._exact_by_engine(node, given)

    def _double_session(self, node: Node, given: Mapping[str, Array]) -> Any:
        """What runs a node in float64; the reason as text where nothing does."""
        made = self._double_model(node, given)
        try:
            return open_exact_session(self.settings, made.SerializeToString(), apart=True)
        except RunError as error:
            return _evaluator(made) or error.what

    def _double_model(self, node: Node, given: Mapping[str, Array]) -> onnx.ModelProto:
        model = self.graph.model
        infos = [onnx.ValueInfoProto(name=name, type=kind_of(value)) for name, value in given.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
        graph = helper.make_graph([doubled_node(node.proto)], "double", infos, outputs)
        made = onnx.ModelProto(ir_version=model.ir_version, graph=graph)
        made.opset_import.extend(model.opset_import)
        made.functions.extend(model.functions)
        return made

    def _opened(self, model: bytes) -> Any:
        try:
            return open_exact_session(self.settings, model)
        except RunError as error:
            raise UnavailableError(error.what) from None

    def _ran(self, session: Any, names: Sequence[str], given: Mapping[str, Any]) -> list[Any]:
        try:
            fed = {name: make_ort_value(value, kind_of(value)) for name, value in given.items()}
            return [copy_value(read_ort_value(value)) for value in run_session(session, names, fed)]
        except Exception as error:
            raise UnavailableError(engine_message(error)) from None

    def _operation(self, node: Node) -> Operation:
        metadata = {entry.key: entry.value for entry in node.proto.metadata_props}
        named = _NAMED.match(metadata.get(FX_NODE, ""))
        return Operation(
            index=node.index,
            name=node.name or next((name for name in node.outputs if name), node.op),
            op=node.op,
            inputs=node.inputs if not bodies_of(node.proto) else self.graph.reads[node.index],
            outputs=tuple(name for name in node.outputs if name),
            node=named[1] if named else None,
            settings=_settings(node.proto),
            attributes=_attributes(node.proto),
            holds_bodies=bool(bodies_of(node.proto)),
            elementwise=node.op in _ELEMENTWISE,
        )


def _evaluator(model: onnx.ModelProto) -> Any:
    from onnx.reference import ReferenceEvaluator

    try:
        return ReferenceEvaluator(model)
    except Exception:
        return None


def _settings(proto: onnx.NodeProto) -> str:
    """The attributes of a node, bodies aside, in one text."""
    kept = [a for a in proto.attribute if a.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)]
    return "\0".join(sorted(a.SerializeToString(deterministic=True).hex() for a in kept))


def _attributes(proto: onnx.NodeProto) -> dict[str, str]:
    kinds = (onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT, onnx.AttributeProto.STRING, onnx.AttributeProto.INTS)
    held = [a for a in proto.attribute if a.type in kinds]
    return {str(a.name): _shown(helper.get_attribute_value(a)) for a in held}


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _held(proto: onnx.NodeProto) -> Array | None:
    attribute = proto.attribute[0]
    value: Any = helper.get_attribute_value(attribute)
    match attribute.name:
        case "value":
            return numpy_helper.to_array(value)
        case "value_float" | "value_floats":
            return np.asarray(value, np.float32)
        case "value_int" | "value_ints":
            return np.asarray(value, np.int64)
        case _:
            return None
