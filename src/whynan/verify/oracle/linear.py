"""What ATen's products of matrices compute, and what is made of them."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.verify.oracle.balls import Ball, midpoint, product
from whynan.verify.oracle.elements import plain
from whynan.verify.oracle.tape import Variable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.verify.oracle.calls import Call, Operator
    from whynan.verify.oracle.elements import Array, Elements
    from whynan.verify.oracle.functions import Functions


def _product(e: Elements, x: Array, y: Array) -> Array:
    """The product of matrices, after broadcasting what comes before their dimensions."""
    if x.shape[-1] == 0:
        shape = (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
        return np.full(shape, e.zero, dtype=object)
    if (
        x.ndim == y.ndim == 2
        and x.size
        and y.size
        and all(type(one) is Ball for one in itertools.chain(x.flat, y.flat))
    ):
        return np.array(product(x.tolist(), y.tolist()), dtype=object).reshape(x.shape[0], y.shape[1])
    if x.ndim == y.ndim == 3 and len(x) == len(y) > 0:
        return np.stack([_product(e, one, other) for one, other in zip(x, y, strict=True)])
    times = np.frompyfunc(e.mul, 2, 1)
    total: Any = None
    for inner in range(x.shape[-1]):
        part = times(x[..., :, inner, None], y[..., None, inner, :])
        total = part if total is None else e.added(total, part)
    return plain(total)


def matmul(f: Functions, x: Variable, y: Variable) -> Variable:
    """The product as ``torch.matmul`` has it: vectors, matrices and batches of them."""
    e = f.e
    one, other = x.data[None, :] if x.rank == 1 else x.data, y.data[:, None] if y.rank == 1 else y.data
    result = _product(e, one, other)
    kept = result.shape

    def pull(gradient: Array) -> list[tuple[Variable, Array]]:
        g = gradient.reshape(kept)
        found: list[tuple[Variable, Array]] = []
        if x.pull is not None:
            found.append((x, _fitted(e, _product(e, g, np.swapaxes(other, -1, -2)), one.shape).reshape(x.shape)))
        if y.pull is not None:
            found.append((y, _fitted(e, _product(e, np.swapaxes(one, -1, -2), g), other.shape).reshape(y.shape)))
        return found

    if x.rank == 1:
        result = np.squeeze(result, axis=-2)
    if y.rank == 1:
        result = np.squeeze(result, axis=-1)
    return f.tape.derived(plain(result), (x, y), pull)


def _fitted(e: Elements, gradient: Array, shape: tuple[int, ...]) -> Array:
    """A gradient summed over the batches that an operand was spread over."""
    while gradient.ndim > len(shape):
        gradient = plain(e.added.reduce(gradient, axis=0))
    for axis, size in enumerate(shape):
        if size == 1 and gradient.shape[axis] != 1:
            gradient = np.expand_dims(plain(e.added.reduce(gradient, axis=axis)), axis)
    return gradient


def _matmul(left: str, right: str) -> Operator:
    return lambda call: matmul(call.functions, call.variable(left), call.variable(right))


def _added_to(left: str, right: str) -> Operator:
    """``beta * self + alpha * (left @ right)``; with a beta of 0, self is not read."""

    def operator(call: Call) -> Variable:
        f = call.functions
        inner = matmul(f, call.variable(left), call.variable(right))
        alpha, beta = call.number("alpha", 1), call.number("beta", 1)
        scaled = inner if alpha == 1 else f.mul(inner, alpha)
        if beta == 0:
            return scaled
        base = call.variable("self")
        return f.add(base if beta == 1 else f.mul(base, beta), scaled)

    return operator


def transposed(f: Functions, x: Variable) -> Variable:
    """The last two dimensions changed about."""
    places = np.arange(x.data.size).reshape(x.shape)
    return f.tape.gather([x], np.swapaxes(places, -1, -2) if x.rank > 1 else places)


def inverse(e: Elements, matrix: Array) -> Array | None:
    """The inverse by Gauss and Jordan; None where no column has a pivot that is certainly not 0."""
    size = matrix.shape[-1]
    rows = [[*row, *(e.one if i == j else e.zero for j in range(size))] for i, row in enumerate(matrix.tolist())]
    for column in range(size):
        pivot = _pivot(e, rows, column)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        lead = rows[column][column]
        rows[column] = [e.div(x, lead) for x in rows[column]]
        for other in range(size):
            if other != column:
                times = rows[other][column]
                rows[other] = [e.sub(x, e.mul(times, y)) for x, y in zip(rows[other], rows[column], strict=True)]
    return np.array(rows, dtype=object)[:, size:]


def _pivot(e: Elements, rows: list[list[Any]], column: int) -> int | None:
    """The row from the diagonal down with the largest element that is certainly not 0."""
    found = [i for i in range(column, len(rows)) if type(rows[i][column]) is Ball and e.sign(rows[i][column])]
    return max(found, key=lambda i: abs(midpoint(rows[i][column])), default=None)


_LARGEST_MATRIX: Final = 8


def _matrices(call: Call, x: Variable) -> Array:
    if x.shape[-1] > _LARGEST_MATRIX or x.shape[-1] != x.shape[-2]:
        raise call.unsupported(f"of more than {_LARGEST_MATRIX} rows")
    return x.data.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


def inverted(call: Call, x: Variable) -> Variable:
    """The inverse of each matrix; undecided where a pivot is."""
    e = call.functions.e
    found = [inverse(e, matrix) for matrix in _matrices(call, x)]
    unknown = np.full(x.shape[-2:], None, dtype=object)
    result = np.array([unknown if one is None else one for one in found], dtype=object).reshape(x.shape)

    def pull(gradient: Array) -> list[tuple[Variable, Array]]:
        turned = np.swapaxes(result, -1, -2)
        part = _product(e, _product(e, turned, gradient), turned)
        return [(x, plain(np.frompyfunc(e.neg, 1, 1)(part)))]

    return call.tape.derived(result, (x,), pull)


def _inverse_ex(call: Call) -> Sequence[Variable]:
    found = inverted(call, call.variable("self", "A"))
    return found, call.tape.full(found.shape[:-2], call.functions.e.zero)


def _elements_of(f: Functions, x: Variable) -> list[list[Variable]]:
    """The elements of a batch of matrices, each as one variable of the whole batch."""
    places = np.arange(x.data.size).reshape(x.shape)
    size = x.shape[-1]
    return [[f.tape.gather([x], places[..., i, j]) for j in range(size)] for i in range(size)]


def _matrix_of(f: Functions, rows: list[list[Variable]]) -> Variable:
    parts = [one for row in rows for one in row]
    count = parts[0].data.size
    places = np.arange(count * len(parts)).reshape(len(rows), len(rows), *parts[0].shape)
    return f.tape.gather(parts, np.moveaxis(places, (0, 1), (-2, -1)))


def _cholesky(call: Call) -> Sequence[Variable]:
    """The triangle by Cholesky and Banachiewicz; its gradient is made symmetrical, as PyTorch has it."""
    f, x = call.functions, call.variable("self", "A")
    _matrices(call, x)
    x = f.mul(f.add(x, transposed(f, x)), 0.5)
    given, size = _elements_of(f, x), x.shape[-1]
    zero = f.zeros(given[0][0])
    found = [[zero] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = given[i][j]
            for k in range(j):
                rest = f.sub(rest, f.mul(found[i][k], found[j][k]))
            found[i][j] = f.sqrt(rest) if i == j else f.div(rest, found[j][j])
    result = _matrix_of(f, found)
    turned = transposed(f, result) if call.flag("upper") else result
    return turned, call.tape.full(x.shape[:-2], f.e.zero)


def determinant(call: Call, x: Variable) -> Variable:
    """The determinant, by expansion along the first row; its gradient needs no inverse."""
    _matrices(call, x)
    f, size = call.functions, x.shape[-1]
    rows = _elements_of(f, x)
    # the minors of the last rows, by the columns that they take; each is made once
    minors: dict[frozenset[int], Variable] = {frozenset(): call.tape.full(x.shape[:-2], f.e.one)}
    for row in reversed(range(size)):
        minors = {
            columns: _expanded(f, rows[row], columns, minors)
            for columns in map(frozenset, itertools.combinations(range(size), size - row))
        }
    return minors[frozenset(range(size))]


def _expanded(
    f: Functions, row: list[Variable], columns: frozenset[int], minors: Mapping[frozenset[int], Variable]
) -> Variable:
    total: Variable | None = None
    for at, column in enumerate(sorted(columns)):
        part = f.mul(row[column], minors[columns - {column}])
        total = part if total is None else f.sub(total, part) if at % 2 else f.add(total, part)
    assert total is not None
    return total


def _slogdet(call: Call) -> Sequence[Variable]:
    f = call.functions
    value = determinant(call, call.variable("A", "self"))
    positive = f.is_above(value, 0.0)
    sign = f.choose(positive, 1.0, f.choose(f.compare(value, f.variable(0.0), (0,)), 0.0, -1.0))
    return [sign, f.log(f.abs(value)), *_unknown(call, 2)]


def _det(call: Call) -> Sequence[Variable]:
    return [determinant(call, call.variable("A", "self")), *_unknown(call, 1)]


def _solve(call: Call) -> Sequence[Variable]:
    f, right = call.functions, call.variable("B")
    if not call.flag("left", True):
        raise call.unsupported("from the right")
    return [matmul(f, inverted(call, call.variable("A")), right), *_unknown(call, 1)]


def _unknown(call: Call, first: int) -> list[Variable]:
    """Outputs that only an operator's own backward reads."""
    return [Variable(np.full(shape, None, dtype=object)) for shape in call.step.shapes[first:]]


ELIMINATIONS: Final = frozenset({"linalg_inv_ex", "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"})
"""Computed by Gaussian elimination with partial pivoting."""
LINEAR: Final[Mapping[str, Operator]] = {
    "mm": _matmul("self", "mat2"),
    "bmm": _matmul("self", "mat2"),
    "mv": _matmul("self", "vec"),
    "dot": _matmul("self", "tensor"),
    "vdot": _matmul("self", "other"),
    "addmm": _added_to("mat1", "mat2"),
    "addmv": _added_to("mat", "vec"),
    "baddbmm": _added_to("batch1", "batch2"),
    "linalg_inv_ex": _inverse_ex,
    "linalg_cholesky_ex": _cholesky,
    "cholesky": lambda call: _cholesky(call)[0],
    "_linalg_det": _det,
    "_linalg_slogdet": _slogdet,
    "_linalg_solve_ex": _solve,
}
