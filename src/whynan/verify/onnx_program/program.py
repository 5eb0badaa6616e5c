"""A part of a graph as a program under test: its run, its steps for the oracle, its inputs cut down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from whynan.fixes.onnx.read import GraphReader, matches
from whynan.verify.arrays import Outcome, is_float, tensor_of
from whynan.verify.cases import cases_of
from whynan.verify.comparison import disputed
from whynan.verify.onnx_program.run import Engines, Unrunnable, part
from whynan.verify.oracle.calls import Program, Ref, Step
from whynan.verify.truth import UnknowableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.verify.cases import Case
    from whynan.verify.onnx_program.regions import Region
    from whynan.verify.onnx_program.run import OpenModel

    _Cut = tuple[dict[str, Any], list[Any]]
    """Smaller inputs, and of each output where their elements stand in the large one laid out flat."""

_ROWS: Final = 48
_ELEMENTS: Final = 200


@dataclass(frozen=True, slots=True)
class GraphProgram:
    """The nodes of a region, before or after a repair, opened as a model of their own."""

    model: onnx.ModelProto
    region: Region
    engines: Engines
    opened: OpenModel
    is_angle: bool = False
    dtypes: tuple[str, ...] = ()

    def run(
        self,
        arguments: Mapping[str, Any],
        needs_grad: frozenset[str] = frozenset(),  # noqa: ARG002
        cotangents: Sequence[Any] | None = None,  # noqa: ARG002
    ) -> Outcome:
        """The outputs of the region; raises ``Unrunnable``."""
        found = self.opened.run(arguments)
        return Outcome(tuple(found[name] for name in self.region.outputs))

    def oracle_program(self, arguments: Mapping[str, Any], needs_grad: frozenset[str] = frozenset()) -> Program:  # noqa: ARG002
        """The nodes as steps for the oracle; an exporter's ``atan2`` as the angle that it stands for."""
        try:
            program = program_of(self.model, self.region, arguments, self.engines)
        except Unrunnable as error:
            raise UnknowableError(str(error)) from error
        if not self.is_angle:
            return program
        angle = angle_of(self.model, self.region)
        assert angle is not None
        last = next(step for step in program.steps if program.outputs[0] in step.outputs)
        return replace(program, steps=(replace(last, op="Atan2", arguments=angle),))

    def first_overflow(self, arguments: Mapping[str, Any], *, scaling: bool) -> None:
        """None: the values between a region's nodes are not kept."""
        del arguments, scaling

    def shrink_case(self, case: Case, new: Mapping[str, Any], seed: int) -> Case | None:
        """The elements in question by themselves, or their rows, where the region gives the same bits for them."""
        inputs: Mapping[str, Any] = case.sample.arguments
        masks = [disputed(old, new[name], dtype) | ~np.isfinite(old) for name, (old, dtype) in case.old.items()]
        masks = masks if any(mask.any() for mask in masks) else [np.ones_like(mask) for mask in masks]
        for way in (_elements, _rows):
            if all(self._agrees(given, way(given, masks)) for given in (inputs, _ordinary(inputs))):
                small, _ = cast("_Cut", way(inputs, masks))
                found = next(cases_of(self, replace(case.sample, arguments=small), seed))
                return replace(found, usual=case.usual, elsewhere=case.elsewhere)
        return None

    def _agrees(self, inputs: Mapping[str, Any], cut: _Cut | None) -> bool:
        """Whether inputs that were cut down give the same bits as the whole ones at the same places."""
        if cut is None:
            return False
        try:
            whole, found = (self.run(given).arrays for given in (inputs, cut[0]))
        except Unrunnable:
            return False
        pairs = [(found[n][0], whole[n][0].reshape(-1)[at]) for n, at in zip(whole, cut[1], strict=True)]
        return all(one.shape == other.shape and one.tobytes() == other.tobytes() for one, other in pairs)


def program_of(model: onnx.ModelProto, region: Region, inputs: Mapping[str, Any], engines: Engines) -> Program:
    """The nodes of a region before the repair as a program, with the dtypes and shapes that they have on these inputs.

    Raises ``Unrunnable`` where they cannot be run on them, ``UnknowableError`` for what no program can say.
    """
    nodes = [node for node in region.before if node.op_type != "Constant"]
    written = [name for node in nodes for name in node.output if name]
    whole = part(model, region.before, inputs, written, region.constants)
    values = engines.open_model(whole).run(inputs)
    home = engines.folder or ""
    constants = {tensor.name: numpy_helper.to_array(tensor, home) for tensor in region.constants}
    for node in region.before:
        if node.op_type == "Constant":
            constants[node.output[0]] = _constant(node)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    return Program(
        dialect="onnx",
        inputs=tuple(inputs),
        steps=tuple(_step(node, values, opsets) for node in nodes),
        outputs=region.outputs,
        dtypes={name: value.dtype.name for name, value in inputs.items()},
        shapes={name: value.shape for name, value in inputs.items()},
        constants=constants,
    )


def _constant(node: onnx.NodeProto) -> Any:
    for attribute in node.attribute:
        if attribute.name == "value":
            return numpy_helper.to_array(attribute.t)
        if attribute.name in ("value_float", "value_int", "value_floats", "value_ints"):
            held = helper.get_attribute_value(attribute)
            return np.array(held, np.float32 if "float" in attribute.name else np.int64)
    raise UnknowableError("a constant of another kind")


def _step(node: onnx.NodeProto, values: Mapping[str, Any], opsets: Mapping[str, int]) -> Step:
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        raise UnknowableError(f"{node.domain}::{node.op_type}") from None
    arguments: dict[str, Any] = {}
    for i, name in enumerate(node.input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        ref = Ref(name) if name else None
        if formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic:
            arguments.setdefault(formal.name, []).append(ref)
        else:
            arguments[formal.name] = ref
    for attribute in node.attribute:
        if attribute.ref_attr_name or attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            raise UnknowableError(f"{node.op_type} with {attribute.name}")
        held = helper.get_attribute_value(attribute)
        arguments[attribute.name] = held.decode() if isinstance(held, bytes) else held
    outputs = [name for name in node.output if name]
    return Step(
        op=node.op_type,
        arguments=arguments,
        outputs=tuple(outputs),
        dtypes=tuple(values[name].dtype.name for name in outputs),
        shapes=tuple(values[name].shape for name in outputs),
    )


def _ordinary(inputs: Mapping[str, Any]) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {n: tensor_of(random.uniform(1, 2, v.shape), v) if is_float(v) else v for n, v in inputs.items()}


def _elements(inputs: Mapping[str, Any], asked: Sequence[Any]) -> _Cut | None:
    """Element by element: every input spread to the shape of the outputs."""
    shapes = {mask.shape for mask in asked}
    if len(shapes) != 1:
        return None
    chosen = _chosen(np.logical_or.reduce([mask.ravel() for mask in asked]), _ELEMENTS)
    try:
        spread: dict[str, Any] = {name: np.broadcast_to(value, asked[0].shape) for name, value in inputs.items()}
    except ValueError:
        return None
    small = {name: np.ravel(value)[chosen] for name, value in spread.items()}
    return small, [chosen] * len(asked)


def _rows(inputs: Mapping[str, Any], asked: Sequence[Any]) -> _Cut | None:
    """Row by row along the first axis."""
    counts = {mask.shape[0] if mask.ndim else 0 for mask in asked}
    if len(counts) != 1 or not (count := counts.pop()):
        return None
    chosen = _chosen(np.logical_or.reduce([mask.reshape(count, -1).any(axis=1) for mask in asked]), _ROWS)
    small = {n: v[chosen] if v.ndim and v.shape[0] == count else v for n, v in inputs.items()}
    return small, [np.arange(int(mask.size)).reshape(mask.shape)[chosen] for mask in asked]


def _chosen(wanted: Any, most: int) -> Any:
    """Some of what is wanted, spread evenly."""
    found: Any = np.flatnonzero(wanted)
    return found if found.size <= most else found[np.linspace(0, found.size - 1, most, dtype=np.int64)]


def angle_of(model: onnx.ModelProto, region: Region) -> dict[str, Ref] | None:
    """What a region gives the angle of, where it is an exporter's ``atan2`` and nothing else."""
    if len(region.outputs) != 1 or len(region.inputs) != 2:
        return None
    given = dict.fromkeys(region.inputs, np.zeros(1, np.float32))
    read = ir.from_proto(part(model, region.before, given, region.outputs, region.constants))
    found = next(matches("atan2(y, x)", read.graph.outputs[0], GraphReader(read.opset_imports.get("", 1))), None)
    names = [getattr(found.bound[name], "name", None) for name in ("y", "x")] if found is not None else []
    if set(names) != set(region.inputs):
        return None
    y, x = map(str, names)
    return {"A": Ref(y), "B": Ref(x)}
