"""Runs of small models and whole ones: on ONNX Runtime, as written or optimised, or on onnx's own evaluator."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import onnx
from onnx import helper

from whynan.capture.onnx.arrays import engine_message, ort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

Values = dict[str, "NDArray[Any]"]
Engine = Literal["onnxruntime", "reference"]
_SILENT: Final = 4
_SEED: Final = 0


class Unrunnable(Exception):  # noqa: N818
    """A model that an engine refuses, or cannot run to its end; the text says why."""


@dataclass(frozen=True, slots=True)
class Engines:
    """How models are run: on which engine, with which libraries of operators, external data in which folder."""

    engine: Engine = "onnxruntime"
    folder: str | None = None
    custom_ops: tuple[str, ...] = ()

    def open_model(self, model: onnx.ModelProto, *, optimised: bool = False) -> OpenModel:
        """A model that can be run as often as wanted; raises ``Unrunnable``."""
        names = [value.name for value in model.graph.output]
        try:
            if self.engine == "reference":
                return OpenModel(_evaluator(model, self.folder), names)
            return OpenModel(self._session(model, optimised), names)
        except Exception as error:
            raise Unrunnable(engine_message(error)) from error

    def outputs(
        self, model: onnx.ModelProto, feeds: Sequence[Mapping[str, Any]], *, optimised: bool = False
    ) -> list[Values]:
        """The outputs of a model for each input; raises ``Unrunnable``.

        Its session ends here: each holds weights, so that no two are to be open at a time.
        """
        session = self.open_model(model, optimised=optimised)
        return [session.run(feed) for feed in feeds]

    def _session(self, model: onnx.ModelProto, optimised: bool) -> Any:
        options = ort.SessionOptions()
        options.log_severity_level = _SILENT
        options.intra_op_num_threads = 1
        if not optimised:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        if self.folder is not None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", self.folder)
        for library in self.custom_ops:
            options.register_custom_ops_library(library)
        # so that what is random is the same in every session
        ort.set_seed(_SEED)
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _evaluator(model: onnx.ModelProto, folder: str | None) -> Any:
    from onnx.reference import ReferenceEvaluator

    if folder is not None:
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        onnx.load_external_data_for_model(whole, folder)
        model = whole
    return ReferenceEvaluator(model)


class OpenModel:
    """A model that was opened."""

    def __init__(self, session: Any, names: list[str]) -> None:
        self._session = session
        self._names = names

    def run(self, feeds: Mapping[str, Any]) -> Values:
        """The outputs by name; raises ``Unrunnable``."""
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = self._session.run(self._names, dict(feeds))
        except Exception as error:
            raise Unrunnable(engine_message(error)) from error
        if not all(isinstance(value, np.ndarray | np.generic) for value in found):
            raise Unrunnable("an output is no tensor")
        return {name: np.asarray(value) for name, value in zip(self._names, found, strict=True)}


def with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A model that gives further values of its graph; those that it reads or holds itself are left out."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    written = {name for node in model.graph.node for name in node.output}
    known = {value.name for value in model.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name in written - known)
    return copy


def part(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, NDArray[Any]],
    outputs: Sequence[str],
    constants: Sequence[onnx.TensorProto],
) -> onnx.ModelProto:
    """Nodes of a model as a model of their own, whose inputs are of any sizes."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
        for name, value in inputs.items()
    ]
    held = [tensor for tensor in constants if tensor.name not in inputs]
    graph = helper.make_graph(list(nodes), "part", infos, [onnx.ValueInfoProto(name=name) for name in outputs], held)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
