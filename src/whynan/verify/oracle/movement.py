"""Operators that move elements, of ATen and ONNX: run on places instead of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.verify.oracle.calls import Ref
from whynan.verify.oracle.elements import plain
from whynan.verify.oracle.tape import Variable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.verify.oracle.calls import Call, Operator


# -- ATen's operators that move elements: PyTorch runs each on places instead of values, and the elements follow -------


# pyright: reportUnknownArgumentType=false


MOVED: Final = frozenset("self input tensors tensor src source values value".split())
"""The arguments whose elements are moved; other tensors are indices and masks, and are read."""
_VIEWS: Final = """
    view _unsafe_view _reshape_copy permute transpose t squeeze unsqueeze expand select slice split split_with_sizes
    unsafe_split unbind unfold diagonal
"""
_MOVES: Final = """
    cat stack index _unsafe_index index_select gather repeat roll flip tril triu take masked_select diag_embed
    pixel_shuffle pixel_unshuffle channel_shuffle repeat_interleave rot90 block_diag constant_pad_nd
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d scatter
    index_put _unsafe_index_put index_copy index_fill masked_scatter slice_scatter select_scatter diagonal_scatter
    expand_copy view_copy permute_copy transpose_copy select_copy slice_copy t_copy squeeze_copy unsqueeze_copy
    split_copy split_with_sizes_copy unbind_copy narrow_copy diagonal_copy unfold_copy upsample_nearest1d
    upsample_nearest2d upsample_nearest3d im2col
"""


class _Places:
    """Numbers for the elements of an operator's arguments: 1, 2, ..., and 0 for a zero that it fills in."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.sources: list[Variable] = []
        self._next = 1

    def arguments(self) -> dict[str, Any]:
        """The arguments to run the operator with."""
        return {name: self._argument(value, name in MOVED) for name, value in self._call.step.arguments.items()}

    def _argument(self, value: Any, moved: bool) -> Any:
        import torch

        if isinstance(value, Ref):
            return self._numbered(self._call.known(value)) if moved else self._read(value)
        if isinstance(value, (list, tuple)):
            return [self._argument(one, moved) for one in list[Any](value)]
        if moved and isinstance(value, (int, float)):
            return int(self._numbered(self._call.tape.constant(value)))
        if isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype):
            return None
        return value

    def _numbered(self, variable: Variable) -> Any:
        import torch

        self.sources.append(variable)
        start, self._next = self._next, self._next + variable.data.size
        return torch.arange(start, self._next, device="cpu").reshape(variable.shape)

    def _read(self, reference: Ref) -> Any:
        import torch

        numbers: Any = torch.tensor(self._call.places(self._call.known(reference)), device="cpu")
        return numbers.bool() if self._call.dtype(reference) == "bool" else numbers


def _run(call: Call, places: _Places) -> Any:
    import torch

    parts = call.step.op.split(".")
    packet = getattr(torch.ops.aten, call.base)
    name = parts[2] if len(parts) > 2 and parts[2] in packet.overloads() else None
    arguments = places.arguments()
    operator = getattr(packet, name) if name is not None else packet
    with torch.no_grad():
        try:
            return operator(**arguments)
        except (RuntimeError, NotImplementedError):
            # some are written for floating-point numbers only, of which these hold every place exactly
            return operator(**{name: _floating(value, name in MOVED) for name, value in arguments.items()})


def _floating(value: Any, moved: bool) -> Any:
    if isinstance(value, list):
        return [_floating(one, moved) for one in list[Any](value)]
    return value.double() if moved and hasattr(value, "double") else value


def _moved(call: Call) -> Variable | list[Variable]:
    if call.flag("accumulate"):
        return _put(call)
    places = _Places(call)
    found: Any = _run(call, places)
    if isinstance(found, (list, tuple)):
        return [_gathered(call, places, one) for one in list[Any](found)]
    return _gathered(call, places, found)


def _gathered(call: Call, places: _Places, found: Any) -> Variable:
    return call.tape.gather(places.sources, found.detach().long().numpy() - 1)


def _put(call: Call) -> Variable:
    """``index_put`` that adds."""
    import torch

    base, values = call.variable("self"), call.variable("values")
    places = _Places(call)
    arguments = places.arguments()
    index = torch.arange(base.data.size, device="cpu").reshape(base.shape)[
        tuple(_or_all(i) for i in arguments["indices"])
    ]
    spread = np.broadcast_to(np.arange(values.data.size).reshape(values.shape), tuple(index.shape))
    return call.tape.accumulate(base, index.numpy(), call.tape.gather([values], spread))


def _or_all(index: Any) -> Any:
    return slice(None) if index is None else index


def _scatter_add(call: Call) -> Variable:
    """``scatter_add``, and ``scatter_reduce`` of a sum or a mean: the source may be larger than the index."""
    base, source, index = call.variable("self"), call.variable("src"), call.places(call.variable("index"))
    reduce, with_self, f = call.raw("reduce"), call.flag("include_self", True), call.functions
    if reduce not in (None, "sum", "add", "mean"):
        raise call.unsupported("a reduction other than a sum and a mean")
    flat = np.arange(base.data.size).reshape(base.shape)
    if base.rank == 0:
        places, taken = np.zeros(index.size, dtype=np.int64), np.arange(index.size)
    else:
        dim = int(call.number("dim", 0)) % base.rank
        inside = tuple(slice(0, size) if axis != dim else slice(None) for axis, size in enumerate(index.shape))
        taken = np.arange(source.data.size).reshape(source.shape)[tuple(slice(0, size) for size in index.shape)]
        places = np.take_along_axis(flat[inside], index, axis=dim)
    terms = np.bincount(places.reshape(-1), minlength=base.data.size).reshape(base.shape)
    start = base if with_self else f.choose(plain(terms > 0), 0.0, base)
    total = call.tape.accumulate(start, places, call.tape.gather([source], taken))
    if reduce != "mean":
        return total
    return f.div(total, call.tape.constant(np.maximum(terms + with_self, 1).astype(np.float64)))


def _pooled(call: Call) -> list[Variable]:
    """What chooses one element of each window, by the places that the run had in each plane."""
    x, chosen = call.variable("self"), call.recorded_output(1)
    if chosen is None:
        raise call.unsupported("without the places that it chose")
    planes = chosen.rank - _PLANES.index(("3d" in call.base and "3d") or "2d")
    return [call.tape.gather([x], _in_planes(x, call.places(chosen), planes)), chosen]


def _in_planes(x: Variable, chosen: Any, lead: int) -> Any:
    size = int(np.prod(x.shape[lead:]))
    first = np.arange(int(np.prod(x.shape[:lead]))).reshape(*x.shape[:lead], *(1,) * (chosen.ndim - lead)) * size
    return first + chosen


_PLANES: Final = ("0d", "1d", "2d", "3d")


def _embedding(call: Call) -> Variable:
    weight = call.variable("weight")
    flat = np.arange(weight.data.size).reshape(weight.shape)
    return call.tape.gather([weight], flat[call.places(call.variable("indices"))])


def _same(call: Call) -> Variable:
    return call.variable("self", "input")


def _detached(call: Call) -> Variable:
    return call.tape.stop(call.variable("self"))


def _copied(call: Call) -> Variable:
    return _broadcast(call, call.variable("src"))


def _filled(call: Call) -> Variable:
    return _broadcast(call, call.variable("value", "fill_value"))


def _broadcast(call: Call, source: Variable) -> Variable:
    index = np.broadcast_to(np.arange(source.data.size).reshape(source.shape), call.shape())
    return call.tape.gather([source], index)


def _linspace(call: Call) -> Variable:
    f, steps = call.functions, call.shape()[0]
    share = f.div(call.tape.constant(np.arange(steps)), float(max(1, steps - 1)))
    return f.add(call.variable("start"), f.mul(share, f.sub(call.variable("end"), call.variable("start"))))


def cast(call: Call) -> Variable:
    """A number in another dtype: whole in an integer's, 1 or 0 in a boolean's, and as it is in any other."""
    f, x, target = call.functions, call.variable("self", "input", "data"), call.step.dtypes[0].rpartition(".")[2]
    if target == "bool":
        return f.from_mask(f.truth(x))
    return f.rounded(x, "trunc") if "int" in target else x


VIEWS: Final[Mapping[str, Operator]] = {
    **dict.fromkeys(_VIEWS.split(), _moved),
    **dict.fromkeys("alias clone lift lift_fresh lift_fresh_copy alias_copy _conj".split(), _same),
    "detach": _detached,
    "detach_copy": _detached,
}
MOVES: Final[Mapping[str, Operator]] = {
    **dict.fromkeys(_MOVES.split(), _moved),
    "scatter_add": _scatter_add,
    "scatter_reduce": _scatter_add,
    "embedding": _embedding,
    **dict.fromkeys("max_pool2d_with_indices max_pool3d_with_indices".split(), _pooled),
    **dict.fromkeys("adaptive_max_pool2d adaptive_max_pool3d".split(), _pooled),
    "copy": _copied,
    "fill": _filled,
    "linspace": _linspace,
    "_to_copy": cast,
}


# -- ONNX's operators that move elements, and those that make constants: by places instead of values -------------------


# pyright: reportUnknownArgumentType=false


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from whynan.verify.oracle.calls import Call, Operator

    Places = NDArray[np.int64]

_DATA = ("data", "input", "X", "x")


def _places(x: Variable) -> Places:
    return np.arange(x.data.size).reshape(x.shape)


def _onnx_moved(place: Callable[[Call, Places], Any]) -> Operator:
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


def _onnx_gathered(call: Call, places: Places) -> Places:
    return np.take(places, call.places(call.variable("indices")), axis=int(call.number("axis", 0)))


def _gathered_elements(call: Call, places: Places) -> Places:
    return np.take_along_axis(places, call.places(call.variable("indices")), axis=int(call.number("axis", 0)))


def _gathered_nd(call: Call, places: Places) -> Places:
    if call.number("batch_dims", 0):
        raise call.unsupported("in batches")
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
        raise call.unsupported(f"reduction {reduction}")
    index = np.arange(base.data.size)
    np.put(index, places, base.data.size + np.arange(updates.data.size))
    return call.tape.gather([base, updates], index.reshape(base.shape))


def _sizes(call: Call) -> Variable:
    start, end = call.raw("start"), call.raw("end")
    return call.tape.constant(np.array(call.variable("data").shape[start:end], dtype=np.int64))


def _onnx_filled(call: Call) -> Variable:
    value = call.raw("value")
    number = 0.0 if value is None else float(_held(value).reshape(-1)[0])
    return call.tape.full(call.shape(), call.functions.e.from_number(number))


def _range(call: Call) -> Variable:
    f = call.functions
    return f.add(f.mul(call.tape.constant(np.arange(call.shape()[0])), call.variable("delta")), call.variable("start"))


def _onnx_constant(call: Call) -> Variable:
    held = call.raw("value", "value_float", "value_floats", "value_int", "value_ints")
    return call.tape.constant(_held(held))


def _held(value: Any) -> Any:
    """The numbers of an attribute: an array, a number, or a tensor as the model has it."""
    if not hasattr(value, "SerializeToString"):
        return np.asarray(value)
    from onnx import numpy_helper

    return numpy_helper.to_array(value)


def _onnx_same(call: Call) -> Variable:
    if call.flag("training_mode"):
        raise call.unsupported("in training")
    return call.variable(*_DATA)


ONNX_MOVES: Final[Mapping[str, Operator]] = {
    **dict.fromkeys("Reshape Squeeze Unsqueeze Flatten".split(), _onnx_moved(_reshaped)),
    **dict.fromkeys("Identity Dropout".split(), _onnx_same),
    "Transpose": _onnx_moved(_transposed),
    "Slice": _onnx_moved(_sliced),
    "Gather": _onnx_moved(_onnx_gathered),
    "GatherElements": _onnx_moved(_gathered_elements),
    "GatherND": _onnx_moved(_gathered_nd),
    "Expand": _onnx_moved(_expanded),
    "Tile": _onnx_moved(_tiled),
    "Trilu": _onnx_moved(_triangle),
    "Pad": _padded,
    "Concat": _concatenated,
    "Split": _split,
    "ScatterElements": _scattered,
    "Scatter": _scattered,
    "ScatterND": _scattered_nd,
    "Shape": _sizes,
    "ConstantOfShape": _onnx_filled,
    "Range": _range,
    "Constant": _onnx_constant,
}
