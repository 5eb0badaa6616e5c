"""A part of a graph as a program that the oracle can compute, and inputs cut down to the elements in question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from whynan.floats import FORMATS
from whynan.verify.graph.running import Engines, Unrunnable, part
from whynan.verify.oracle.programs import Program, Ref, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.verify.graph.regions import Region


class Unknown(Exception):  # noqa: N818  (what is said is what the oracle lacks)
    """What no exact values are known of."""


_ROWS: Final = 48
_ELEMENTS: Final = 200


def program_of(model: onnx.ModelProto, region: Region, inputs: Mapping[str, Any], engines: Engines) -> Program:
    """The nodes of a region before the repair as a program, with the dtypes and shapes that they have on these inputs.

    Raises ``Unrunnable`` where they cannot be run on them, ``Unknown`` for what no program can say.
    """
    nodes = [node for node in region.before if node.op_type != "Constant"]
    written = [name for node in nodes for name in node.output if name]
    whole = part(model, region.before, inputs, written, region.constants)
    values = engines.opened(whole).run(inputs)
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
        outputs=tuple(name for name in region.outputs if values[name].dtype.name in FORMATS),
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
    raise Unknown("a constant of another kind")


def _step(node: onnx.NodeProto, values: Mapping[str, Any], opsets: Mapping[str, int]) -> Step:
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        raise Unknown(f"{node.domain}::{node.op_type}") from None
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
            raise Unknown(f"{node.op_type} with {attribute.name}")
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


def cut(
    inputs: Mapping[str, Any], asked: Mapping[str, Any], run: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Smaller inputs whose outputs hold elements in question, and of each output where these stand in the large one.

    It is tried whether the smaller ones give the same bits as there, with these numbers and with ordinary ones, which
    are finite; None where no way of cutting does.
    """
    for way in (_elements, _rows):
        found = way(inputs, asked)
        if found is None:
            continue
        small, where = found
        ordinary = _ordinary(inputs)
        other = way(ordinary, asked)
        if other is not None and _agrees(inputs, small, where, run) and _agrees(ordinary, other[0], where, run):
            return small, where
    return None


def _agrees(
    inputs: Mapping[str, Any],
    small: Mapping[str, Any],
    where: Mapping[str, Any],
    run: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> bool:
    try:
        whole, found = run(inputs), run(small)
    except Unrunnable:
        return False
    return all(_same(found[name], whole[name].reshape(-1)[places]) for name, places in where.items())


def _ordinary(inputs: Mapping[str, Any]) -> dict[str, Any]:
    random = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for name, value in inputs.items():
        made[name] = value
        if value.dtype.name in FORMATS:
            made[name] = random.uniform(1, 2, value.shape)
            made[name] = np.asarray(made[name]).astype(value.dtype)
    return made


def _same(one: Any, other: Any) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _elements(inputs: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Element by element: every input spread to the shape of the outputs."""
    shapes = {mask.shape for mask in asked.values()}
    if len(shapes) != 1:
        return None
    shape = shapes.pop()
    chosen = _chosen(np.logical_or.reduce([mask.ravel() for mask in asked.values()]), _ELEMENTS)
    try:
        small = {name: np.broadcast_to(value, shape).reshape(-1)[chosen] for name, value in inputs.items()}
    except ValueError:
        return None
    return small, dict.fromkeys(asked, chosen)


def _rows(inputs: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Row by row along the first axis."""
    counts = {mask.shape[0] if mask.ndim else 0 for mask in asked.values()}
    if len(counts) != 1 or not (count := counts.pop()):
        return None
    bad = np.logical_or.reduce([mask.reshape(count, -1).any(axis=1) for mask in asked.values()])
    chosen = _chosen(bad, _ROWS)
    small = {n: v[chosen] if v.ndim and v.shape[0] == count else v for n, v in inputs.items()}
    where: dict[str, Any] = {name: places_of(mask)[chosen] for name, mask in asked.items()}
    return small, where


def places_of(mask: Any) -> Any:
    """Where each element of an array stands in it laid out flat."""
    places: Any = np.arange(int(mask.size), dtype=np.int64)
    return places.reshape(mask.shape)


def _chosen(wanted: Any, most: int) -> Any:
    """Some of what is wanted, spread evenly."""
    found: Any = np.flatnonzero(wanted)
    if found.size <= most:
        return found
    spread: Any = np.linspace(0, found.size - 1, most, dtype=np.int64)
    return found[spread]


def small_enough(inputs: Sequence[Any]) -> bool:
    """Whether inputs may be computed exactly as they are."""
    return sum(int(np.size(value)) for value in inputs) <= 2 * _ELEMENTS
