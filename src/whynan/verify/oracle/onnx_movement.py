"""ONNX's operators that move elements, and those that make constants: by places instead of values."""

# pyright: strict
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.verify.oracle.tape import Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from whynan.verify.oracle.calls import Call, Operator

    Places = NDArray[np.int64]

_DATA = ("data", "input", "X", "x")


def _places(x: Variable) -> Places:
    return np.arange(x.data.size).reshape(x.shape)


def _moved(place: Callable[[Call, Places], Any]) -> Operator:
    """What a function makes of the places of its first operand's elements."""

    def operator(call: Call) -> Variable:
        x = call.variable(*_DATA)
        return call.tape.gather([x], np.asarray(place(call, _places(x)), dtype=np.int64))

    return operator


def _reshaped(call: Call, places: Places) -> Places:
    """To the shape that it had in the run: whatever said so, the elements stay in their order."""
    return places.reshape(call.shape())


def _transposed(call: Call, places: Places) -> Places:
    return np.transpose(places, call.integers("perm"))


def _sliced(call: Call, places: Places) -> Places:
    starts, ends = call.integers("starts") or [], call.integers("ends") or []
    axes = call.integers("axes") or list(range(len(starts)))
    steps = call.integers("steps") or [1] * len(starts)
    index: list[Any] = [slice(None)] * places.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = places.shape[axis]
        behind = None if step < 0 and end < -size else end
        index[axis] = slice(start, behind, step)
    return places[tuple(index)]


def _gathered(call: Call, places: Places) -> Places:
    return np.take(places, call.places(call.variable("indices")), axis=int(call.number("axis", 0)))


def _gathered_elements(call: Call, places: Places) -> Places:
    return np.take_along_axis(places, call.places(call.variable("indices")), axis=int(call.number("axis", 0)))


def _gathered_nd(call: Call, places: Places) -> Places:
    if call.number("batch_dims", 0):
        raise call.refused("in batches")
    index = call.places(call.variable("indices"))
    return places[tuple(np.moveaxis(index, -1, 0))]


def _expanded(call: Call, places: Places) -> Places:
    return np.broadcast_to(places, call.shape())


def _tiled(call: Call, places: Places) -> Places:
    return np.tile(places, call.integers("repeats") or [])


def _triangle(call: Call, places: Places) -> Places:
    diagonal = int(call.number("k", 0))
    inside = np.tri(*places.shape[-2:], k=diagonal - 1 if call.flag("upper", True) else diagonal, dtype=bool)
    return np.where(~inside if call.flag("upper", True) else inside, places, -1)


def _padded(call: Call) -> Variable:
    x, pads = call.variable("data"), call.integers("pads") or []
    mode = call.raw("mode") or "constant"
    axes = call.integers("axes") or list(range(x.rank))
    widths = [(0, 0)] * x.rank
    for at, axis in enumerate(axes):
        widths[axis] = pads[at], pads[at + len(axes)]
    if mode != "constant":
        modes: dict[str, Any] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
        return call.tape.gather([x], np.pad(_places(x), widths, mode=modes[mode]))
    value = call.variable("constant_value") if call.has("constant_value") else call.functions.variable(0.0)
    return call.tape.gather([x, value], np.pad(_places(x), widths, constant_values=x.data.size))


def _concatenated(call: Call) -> Variable:
    sources = call.variables("inputs")
    starts = np.cumsum([0, *(source.data.size for source in sources)])
    parts = [_places(source) + start for source, start in zip(sources, starts, strict=False)]
    return call.tape.gather(sources, np.concatenate(parts, axis=int(call.number("axis", 0))))


def _split(call: Call) -> Sequence[Variable]:
    x, axis = call.variable("input"), int(call.number("axis", 0))
    ends = np.cumsum([shape[axis] for shape in call.step.shapes])[:-1]
    return [call.tape.gather([x], part) for part in np.split(_places(x), ends, axis=axis)]


def _scattered(call: Call) -> Variable:
    """ScatterElements and Scatter: what replaces, and what adds."""
    base, updates, index = call.variable("data"), call.variable("updates"), call.places(call.variable("indices"))
    axis, places = int(call.number("axis", 0)), _places(call.variable("data"))
    grid: list[Any] = list(np.indices(index.shape))
    grid[axis] = index
    return _placed(call, base, updates, places[tuple(grid)])


def _scattered_nd(call: Call) -> Variable:
    base, index = call.variable("data"), call.places(call.variable("indices"))
    return _placed(call, base, call.variable("updates"), _places(base)[tuple(np.moveaxis(index, -1, 0))])


def _placed(call: Call, base: Variable, updates: Variable, places: Places) -> Variable:
    reduction = call.raw("reduction") or "none"
    if reduction == "add":
        return call.tape.accumulate(base, places, updates)
    if reduction != "none":
        raise call.refused(f"reduction {reduction}")
    index = np.arange(base.data.size)
    np.put(index, places, base.data.size + np.arange(updates.data.size))
    return call.tape.gather([base, updates], index.reshape(base.shape))


def _sizes(call: Call) -> Variable:
    start, end = call.raw("start"), call.raw("end")
    return call.tape.constant(np.array(call.variable("data").shape[start:end], dtype=np.int64))


def _filled(call: Call) -> Variable:
    value = call.raw("value")
    number = 0.0 if value is None else float(_held(value).reshape(-1)[0])
    return call.tape.full(call.shape(), call.functions.e.of(number))


def _range(call: Call) -> Variable:
    f = call.functions
    return f.add(f.mul(call.tape.constant(np.arange(call.shape()[0])), call.variable("delta")), call.variable("start"))


def _constant(call: Call) -> Variable:
    held = call.raw("value", "value_float", "value_floats", "value_int", "value_ints")
    return call.tape.constant(_held(held))


def _held(value: Any) -> Any:
    """The numbers of an attribute: an array, a number, or a tensor as the model has it."""
    if not hasattr(value, "SerializeToString"):
        return np.asarray(value)
    from onnx import numpy_helper

    return numpy_helper.to_array(value)


def _same(call: Call) -> Variable:
    if call.flag("training_mode"):
        raise call.refused("in training")
    return call.variable(*_DATA)


ONNX_MOVES: Final[Mapping[str, Operator]] = {
    **dict.fromkeys("Reshape Squeeze Unsqueeze Flatten".split(), _moved(_reshaped)),
    **dict.fromkeys("Identity Dropout".split(), _same),
    "Transpose": _moved(_transposed),
    "Slice": _moved(_sliced),
    "Gather": _moved(_gathered),
    "GatherElements": _moved(_gathered_elements),
    "GatherND": _moved(_gathered_nd),
    "Expand": _moved(_expanded),
    "Tile": _moved(_tiled),
    "Trilu": _moved(_triangle),
    "Pad": _padded,
    "Concat": _concatenated,
    "Split": _split,
    "ScatterElements": _scattered,
    "Scatter": _scattered,
    "ScatterND": _scattered_nd,
    "Shape": _sizes,
    "ConstantOfShape": _filled,
    "Range": _range,
    "Constant": _constant,
}
