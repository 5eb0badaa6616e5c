"""What ATen's operators along dimensions compute: reductions, softmax, norms and the layers that normalise."""

# A ball has no type here: not every version of python-flint has stubs.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.verify.oracle.elements import plain
from whynan.verify.oracle.tape import Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.verify.oracle.calls import Call, Operator
    from whynan.verify.oracle.elements import Array, Elements


def _self(call: Call) -> Variable:
    return call.variable("self", "input")


def _dims(call: Call, x: Variable) -> tuple[int, ...]:
    return call.functions.dims(x, call.integers("dim"))


def _row(call: Call, x: Variable) -> int:
    """The one dimension that an operator works along."""
    found = call.integers("dim")
    return found[0] % max(x.rank, 1) if found else 0


def _sum(call: Call) -> Variable:
    x = _self(call)
    return call.tape.sum(x, _dims(call, x), call.flag("keepdim"))


def _distance(call: Call) -> Variable:
    """``dist``: the norm of the difference of two tensors."""
    apart = call.functions.sub(_self(call), call.variable("other"))
    return norm(call, apart, call.number("p", 2.0), call.functions.dims(apart, None), keepdim=False)


def _mean(call: Call) -> Variable:
    x = _self(call)
    return call.functions.mean(x, _dims(call, x), call.flag("keepdim"))


def _logsumexp(call: Call) -> Variable:
    x = _self(call)
    return call.functions.logsumexp(x, _dims(call, x), call.flag("keepdim"))


def _softmax(call: Call) -> Variable:
    x = _self(call)
    return call.functions.softmax(x, _row(call, x))


def _log_softmax(call: Call) -> Variable:
    x = _self(call)
    return call.functions.log_softmax(x, _row(call, x))


def _moments(call: Call) -> tuple[Variable, Variable]:
    x = _self(call)
    dims, keepdim = _dims(call, x), call.flag("keepdim")
    biased = call.raw("unbiased") is False
    correction = call.number("correction", 0.0 if biased else 1.0)
    f = call.functions
    return f.variance(x, dims, correction, keepdim), f.mean(x, dims, keepdim)


def _norm(call: Call) -> Variable:
    """A vector norm; as PyTorch has it, the gradient at the origin is 0."""
    x = _self(call)
    power = call.number("ord" if call.has("ord") else "p", 2.0)
    return norm(call, x, power, _dims(call, x), call.flag("keepdim"))


def norm(call: Call, x: Variable, power: float, dims: tuple[int, ...], keepdim: bool) -> Variable:
    """The norm of a power along dimensions."""
    f = call.functions
    if power == 0:
        return f.tape.sum(f.from_mask(f.truth(x)), dims, keepdim)
    size = f.abs(x)
    if math.isinf(power):
        return extreme(call, size, dims, keepdim, 1 if power > 0 else -1)
    if power == 1:
        return f.tape.sum(size, dims, keepdim)
    total = f.tape.sum(f.square(x) if power == 2 else f.pow(size, power), dims, keepdim)
    at_origin = f.compare(total, f.variable(0.0), (0,))
    away = f.choose(at_origin, 1.0, total)
    root = f.sqrt(away) if power == 2 else f.pow(away, f.div(1.0, f.variable(power)))
    return f.choose(at_origin, 0.0 if power > 0 else total, root)


def extreme(call: Call, x: Variable, dims: tuple[int, ...], keepdim: bool, order: int) -> Variable:
    """The largest of each row (the smallest, for order -1); equal ones share the gradient."""
    e = call.functions.e
    found = call.tape.fold(x, dims, lambda x, y: _further(e, x, y, order), lambda x: x)
    sharing = call.tape.decided(lambda: _sharing(e, x.data, found, dims))

    def part(gradient: Any, sharing: int | None) -> Any:
        return e.hull(gradient, 0) if sharing is None else e.div(gradient, e.from_number(sharing)) if sharing else 0

    def pull(gradient: Array) -> list[tuple[Variable, Array]]:
        whole = np.broadcast_to(gradient.reshape(found.shape), x.shape)
        return [(x, plain(np.frompyfunc(part, 2, 1)(whole, sharing)))]

    rest = tuple(size for axis, size in enumerate(x.shape) if axis not in dims)
    return call.tape.derived(found if keepdim else found.reshape(rest), (x,), pull)


def _further(e: Elements, x: Any, y: Any, order: int) -> Any:
    if e.is_undefined(x) or e.is_undefined(y):
        return math.nan
    found = e.order(x, y)
    return e.hull(x, y) if found is None else x if found in (0, order) else y


def _sharing(e: Elements, x: Array, best: Array, dims: tuple[int, ...]) -> Array:
    """With how many each element shares being its row's largest: 0 where it is not, None where that is undecided."""

    def asked(x: Any, best: Any) -> bool | None:
        if e.is_undefined(best):
            return e.is_undefined(x)
        found = e.order(x, best)
        return None if found is None else found == 0

    among = plain(np.frompyfunc(asked, 2, 1)(x, np.broadcast_to(best, x.shape)))
    ties = (among != False).astype(np.int64)  # noqa: E712  (an array is compared, which may hold None)
    certain = (among == True).astype(np.int64)  # noqa: E712
    count, sure = (np.broadcast_to(found.sum(axis=dims, keepdims=True), x.shape) for found in (ties, certain))
    # of one that may be it alone, that is certain
    return plain(np.frompyfunc(_share, 3, 1)(ties, count, sure))


def _share(tied: int, count: int, sure: int) -> int | None:
    return 0 if not tied else int(count) if count in (1, sure) else None


def _amax(order: int) -> Operator:
    def operator(call: Call) -> Variable:
        x = _self(call)
        return extreme(call, x, _dims(call, x), call.flag("keepdim"), order)

    return operator


def _max(order: int) -> Operator:
    """All forms: of two tensors, of all elements, and along a dimension with the indices."""

    def operator(call: Call) -> Any:
        f, x = call.functions, _self(call)
        if call.has("other"):
            other = call.variable("other")
            return f.maximum(x, other) if order > 0 else f.minimum(x, other)
        if not call.has("dim"):
            return extreme(call, x, f.dims(x, None), keepdim=False, order=order)
        dim, keepdim = _row(call, x), call.flag("keepdim")
        index = call.recorded_output(1) or _first(call, x, (dim,), order, keepdim)
        return _along(call, x, index, dim, keepdim), index

    return operator


def _first(call: Call, x: Variable, dims: tuple[int, ...], order: int, keepdim: bool) -> Variable:
    """The index of the first of the largest elements of each row."""
    e = call.functions.e
    best = call.tape.fold(x, dims, lambda x, y: _further(e, x, y, order), lambda x: x)
    sharing = call.tape.decided(lambda: _sharing(e, x.data, best, dims))
    if (sharing == None).any():  # noqa: E711  (an array is compared)
        raise call.unsupported("which is the largest is undecided")
    moved = np.moveaxis(sharing, dims, tuple(range(x.rank - len(dims), x.rank)))
    rows = moved.reshape(*moved.shape[: x.rank - len(dims)], -1).astype(np.int64)
    found = call.tape.constant((rows > 0).argmax(axis=-1))
    return Variable(found.data.reshape(best.shape)) if keepdim else found


def _argmax(order: int) -> Operator:
    def operator(call: Call) -> Variable:
        given, x = call.recorded_output(0), _self(call)
        dims = (_row(call, x),) if call.has("dim") else call.functions.dims(x, None)
        return given or _first(call, x, dims, order, call.flag("keepdim"))

    return operator


def _along(call: Call, x: Variable, index: Variable, dim: int, keepdim: bool) -> Variable:
    """The elements of each row at indices, of which the dimension may have been dropped."""
    places = call.places(index)
    kept = places if keepdim or x.rank == 0 else np.expand_dims(places, dim)
    flat = np.arange(x.data.size).reshape(x.shape)
    found = np.take_along_axis(flat, kept, axis=dim) if x.rank else flat
    return call.tape.gather([x], found if keepdim or x.rank == 0 else np.squeeze(found, axis=dim))


def _ordered(call: Call) -> Sequence[Variable]:
    """What sorts or chooses along a dimension, by the indices that the run had."""
    x, index = _self(call), call.recorded_output(1)
    if index is None:
        raise call.unsupported("without the order that it had")
    dim = _row(call, x) if call.has("dim") else x.rank - 1
    return _along(call, x, index, max(dim, 0), index.rank == x.rank), index


def _prod(call: Call) -> Variable:
    x = _self(call)
    return product(call, x, _dims(call, x), call.flag("keepdim"))


def product(call: Call, x: Variable, dims: tuple[int, ...], keepdim: bool = False) -> Variable:
    """The product of each row; a gradient is made of the products before and behind, and so needs no division."""
    e = call.functions.e
    rows, kept = call.tape.rows(x.data, dims)
    times = np.frompyfunc(e.mul, 2, 1)
    ones = np.full((*rows.shape[:-1], 1), e.one, dtype=object)
    before = times.accumulate(np.concatenate([ones, rows], axis=-1), axis=-1)
    behind = times.accumulate(np.concatenate([ones, rows[..., ::-1]], axis=-1), axis=-1)[..., ::-1]

    def pull(gradient: Array) -> list[tuple[Variable, Array]]:
        others = times(before[..., :-1], behind[..., 1:])
        found = times(gradient.reshape(rows.shape[:-1])[..., None], others)
        order = [axis for axis in range(x.rank) if axis not in dims] + list(dims)
        sizes = [x.shape[axis] for axis in order]
        return [(x, plain(np.transpose(found.reshape(sizes), np.argsort(order))))]

    result = before[..., -1]
    return call.tape.derived(plain(result).reshape(kept) if keepdim else plain(result), (x,), pull)


def _running(call: Call, x: Variable, dim: int, step: Callable[[Variable, Variable], Variable]) -> Variable:
    """What a function of two makes of all elements of a row up to each."""
    if x.rank == 0 or x.data.size == 0:
        return x
    flat = np.moveaxis(np.arange(x.data.size).reshape(x.shape), dim, 0)
    parts = [call.tape.gather([x], places) for places in flat]
    for at in range(1, len(parts)):
        parts[at] = step(parts[at - 1], parts[at])
    index = np.arange(x.data.size).reshape(flat.shape)
    return call.tape.gather(parts, np.moveaxis(index, 0, dim))


def cumulated(how: str) -> Operator:
    """The running sum or product: ``add`` or ``mul``."""

    def operator(call: Call) -> Variable:
        x = _self(call)
        return _running(call, x, _row(call, x), getattr(call.functions, how))

    return operator


def _logcumsumexp(call: Call) -> Variable:
    f, x = call.functions, _self(call)
    dim = _row(call, x)
    shift = f.top(x, (dim,)) if x.rank else f.zeros(x)
    return f.add(f.log(_running(call, f.exp(f.sub(x, shift)), dim, f.add)), shift)


def _any(every: bool) -> Operator:
    def operator(call: Call) -> Variable:
        x = _self(call)
        mask = call.functions.truth(x)
        decisive = not every

        def either(x: bool | None, y: bool | None) -> bool | None:
            return decisive if decisive in (x, y) else None if None in (x, y) else every

        found = call.tape.fold(Variable(mask), _dims(call, x), either, lambda x: x)
        rest = found if call.flag("keepdim") else found.reshape(call.shape())
        return call.functions.from_mask(rest)

    return operator


ROWS: Final[Mapping[str, Operator]] = {
    "sum": _sum,
    "mean": _mean,
    "dist": _distance,
    "prod": _prod,
    "logsumexp": _logsumexp,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "var": lambda call: _moments(call)[0],
    "var_mean": _moments,
    "norm": _norm,
    "linalg_vector_norm": _norm,
    "amax": _amax(1),
    "amin": _amax(-1),
    "max": _max(1),
    "min": _max(-1),
    "argmax": _argmax(1),
    "argmin": _argmax(-1),
    "topk": _ordered,
    "sort": _ordered,
    "kthvalue": _ordered,
    "median": _ordered,
    "nanmedian": _ordered,
    "mode": _ordered,
    "cummax": _ordered,
    "cummin": _ordered,
    "cumsum": cumulated("add"),
    "cumprod": cumulated("mul"),
    "logcumsumexp": _logcumsumexp,
    "any": _any(every=False),
    "all": _any(every=True),
}
