"""Exact values of a part of a graph: a program for the oracle, angles as angles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from whynan.fixes.onnx.read import GraphReader, matches
from whynan.floats import FORMATS, format_of
from whynan.verify.comparison import Truth
from whynan.verify.onnx_program.run import Engines, Unrunnable, part
from whynan.verify.oracle.calls import Program, Ref, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.verify.onnx_program.regions import Region
    from whynan.verify.onnx_program.run import Opened


# -- A part of a graph as a program that the oracle can compute, and inputs cut down to the elements in question -------


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


# -- A part of a graph that stands for ``atan2``: the truth of it is the angle, not what the chain of nodes would
# give


@dataclass(frozen=True, slots=True)
class Angle:
    """The values whose angle a region gives."""

    y: str
    x: str

    def truth(self, inputs: Mapping[str, Any]) -> Truth:
        """The angles in the longest floats that there are, signs of zeros included, and the noise of computing them.

        The noise is what a rounding of y, x and of the result each can move it by.
        """
        known = format_of(inputs[self.y].dtype.name)
        y, x = (inputs[name].astype(np.longdouble) for name in (self.y, self.x))
        with np.errstate(all="ignore"):
            values = np.asarray(np.arctan2(y, x), np.float64)
            moved = np.abs(np.sin(2 * values))
        noise = known.eps / 2 * (np.abs(values) + moved)
        undefined = np.isnan(values)
        nothing = np.zeros_like(undefined)
        return Truth(values, nothing, undefined, nothing, np.where(undefined, 0.0, noise))


def angle_of(model: onnx.ModelProto, region: Region) -> Angle | None:
    """What a region gives the angle of, where it is an exporter's ``atan2`` and nothing else."""
    if len(region.outputs) != 1 or len(region.inputs) != 2:
        return None
    given = dict.fromkeys(region.inputs, np.zeros(1, np.float32))
    read = ir.from_proto(part(model, region.before, given, region.outputs, region.constants))
    found = next(matches("atan2(y, x)", read.graph.outputs[0], GraphReader(read.opset_imports.get("", 1))), None)
    names = [getattr(found.bound[name], "name", None) for name in ("y", "x")] if found is not None else []
    return Angle(*map(str, names)) if set(names) == set(region.inputs) else None


# -- The exact values of a part of a graph at the elements in question, asked of the oracle ----------------------------


class Exactness:
    """Knows the exact values of a region; ``unsupported`` are the operators that the oracle does not have."""

    def __init__(self, model: onnx.ModelProto, region: Region, engines: Engines, old: Opened) -> None:
        self._model, self._region, self._engines, self._old = model, region, engines, old
        self._angle = angle_of(model, region)
        self.unsupported: dict[str, None] = {}

    def truths(self, inputs: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, tuple[Truth, Any]]:
        """For each output the truth, and where it was looked for; empty where the oracle cannot tell."""
        if self._angle is not None:
            return {name: (self._angle.truth(inputs), np.ones_like(mask)) for name, mask in asked.items()}
        found = cut(inputs, asked, self._old.run)
        if found is None:
            if not small_enough(list(inputs.values())):
                self.unsupported["way to cut such inputs down"] = None
                return {}
            whole: dict[str, Any] = {name: places_of(mask) for name, mask in asked.items()}
            found = dict(inputs), whole
        small, where = found
        try:
            small_truths = self._asked(small)
        except (Unrunnable, Unknown) as error:
            self.unsupported[str(error)] = None
            return {}
        return {
            name: _spread(truth, where[name], asked[name].shape)
            for name, truth in small_truths.items()
            if name in where
        }

    def _asked(self, inputs: Mapping[str, Any]) -> dict[str, Truth]:
        from whynan.verify.oracle import Unsupported, exact, noise_floor

        program = program_of(self._model, self._region, inputs, self._engines)
        try:
            found = exact(program, inputs, {})
            noise = noise_floor(program, inputs, {})
        except Unsupported as error:
            raise Unknown(error.op) from error
        return {
            name: Truth(
                values=np.nan_to_num(balls.midpoint(), nan=0.0, posinf=np.inf, neginf=-np.inf),
                infinite=balls.infinite(),
                undefined=balls.undefined(),
                undecided=balls.undecided(),
                noise=noise.outputs[name],
            )
            for name, balls in found.outputs.items()
        }


def _spread(truth: Truth, places: Any, shape: tuple[int, ...]) -> tuple[Truth, Any]:
    """The truth of some elements as that of all, and which they are."""
    size = int(np.prod(shape))

    def wide(values: Any, otherwise: Any) -> Any:
        made = np.full(size, otherwise, np.asarray(values).dtype)
        made[places.ravel()] = np.asarray(values).ravel()
        return made.reshape(shape)

    looked = np.zeros(size, np.bool_)
    looked[places.ravel()] = True
    whole = Truth(
        wide(truth.values, 0.0),
        wide(truth.infinite, False),
        wide(truth.undefined, False),
        wide(truth.undecided, False),
        wide(truth.noise, 0.0),
    )
    return whole, looked.reshape(shape)
