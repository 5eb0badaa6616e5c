"""Arrays of elements that remember what they were made of, so that gradients can be carried back: reverse mode."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from whynan.verify.oracle.balls import check_time
from whynan.verify.oracle.elements import NOTHING, UNDECIDED, Elements, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from whynan.verify.oracle.elements import Array

    Pull = Callable[[Array], "Sequence[tuple[Variable, Array | Scattered]]"]
    Integers = NDArray[np.int64]


class Scattered(NamedTuple):
    """Elements of a gradient at flat places, of which one may come several times; of all others it is nothing."""

    places: Integers
    values: Array


class Variable:
    """An array of elements; ``pull`` gives, for its gradient, what it adds to the gradients of what it was made of.

    ``owns`` its gradient: no other holds the array, which may be added to.
    """

    __slots__ = ("data", "exact", "gradient", "owns", "pull")

    def __init__(self, data: Array, pull: Pull | None = None, exact: bool = False) -> None:
        self.data = data
        self.pull = pull
        self.exact = exact
        self.gradient: Array | None = None
        self.owns = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self.data.shape

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return self.data.ndim


class Decisions:
    """What comparisons came to, in order: noisy runs of a program take the ways that the exact one took."""

    def __init__(self) -> None:
        self._made: list[Array] = []
        self._next: Iterator[Array] | None = None

    def replay(self) -> Decisions:
        """The same decisions, to be taken once more."""
        other = Decisions()
        other._next = iter(self._made)
        return other

    def next_decision(self, make: Callable[[], Array]) -> Array:
        """The decision that was taken here, or a new one."""
        if self._next is not None:
            return next(self._next)
        self._made.append(make())
        return self._made[-1]


class Tape:
    """The operations that all others are made of, each with its value and its adjoint."""

    def __init__(self, elements: Elements, decisions: Decisions | None = None) -> None:
        self.elements = elements
        self._decisions = decisions or Decisions()
        self._made: list[Variable] = []

    # -- from numbers --------------------------------------------------------------------------------------------

    def constant(self, numbers: Any) -> Variable:
        """An array of numbers, exactly."""
        return Variable(self.elements.array(numbers))

    def leaf(self, data: Array) -> Variable:
        """An array whose gradient is wanted."""
        return self._record(Variable(data, lambda _: ()))

    def full(self, shape: Sequence[int], element: Any) -> Variable:
        """An array of one element throughout."""
        data = np.empty(tuple(shape), dtype=object)
        data.reshape(-1)[:] = [element] * data.size
        return Variable(data)

    def _record(self, variable: Variable) -> Variable:
        self._made.append(variable)
        return variable

    def derived(self, data: Array, operands: Sequence[Variable], pull: Pull) -> Variable:
        """What was made of some operands; a constant where none of them wants a gradient."""
        if all(operand.pull is None for operand in operands):
            return Variable(data)
        return self._record(Variable(data, pull))

    # -- element by element --------------------------------------------------------------------------------------

    def pointwise(
        self, value: Callable[..., Any], partials: Sequence[Callable[..., Any] | None], *operands: Variable
    ) -> Variable:
        """A function of elements after broadcasting.

        Each partial gives, of the gradient, the operands' elements and the result, what goes to one operand.
        """
        arrays = [operand.data for operand in operands]
        result = plain(np.frompyfunc(value, len(arrays), 1)(*arrays))

        def pull(gradient: Array) -> list[tuple[Variable, Array]]:
            return [
                (operand, plain(np.frompyfunc(partial, len(arrays) + 2, 1)(gradient, *arrays, result)))
                for operand, partial in zip(operands, partials, strict=True)
                if partial is not None and operand.pull is not None
            ]

        return self.derived(result, operands, pull)

    def decide(self, value: Callable[..., bool | None], *operands: Variable) -> Array:
        """A question to each element: an array of True, False and, where that is undecided, None."""
        return self._decisions.next_decision(
            lambda: plain(np.frompyfunc(value, len(operands), 1)(*(operand.data for operand in operands)))
        )

    def decided(self, make: Callable[[], Array]) -> Array:
        """Any array that the elements' order decides."""
        return self._decisions.next_decision(make)

    def choose(self, mask: Array, chosen: Variable, other: Variable) -> Variable:
        """The elements of one where the mask is True, of another where it is False; of both where it is undecided."""
        hull = self.elements.hull

        def value(asked: bool | None, x: Any, y: Any) -> Any:
            return x if asked else hull(x, y) if asked is None else y

        def to_chosen(gradient: Any, asked: bool | None, *_: Any) -> Any:
            return gradient if asked else hull(gradient, NOTHING) if asked is None else NOTHING

        def to_other(gradient: Any, asked: bool | None, *_: Any) -> Any:
            return NOTHING if asked else hull(gradient, NOTHING) if asked is None else gradient

        return self.pointwise(value, (None, to_chosen, to_other), Variable(mask), chosen, other)

    def stop(self, x: Variable) -> Variable:
        """The same elements, through which no gradient goes."""
        return Variable(x.data)

    def noisy(self, x: Variable, factor: Callable[[Any], Any]) -> Variable:
        """Every element, and every element of its gradient, times a factor near 1 that is drawn for each."""
        rounded = np.frompyfunc(factor, 1, 1)
        return self.derived(plain(rounded(x.data)), (x,), lambda gradient: ((x, plain(rounded(gradient))),))

    # -- between elements ----------------------------------------------------------------------------------------

    def gather(self, sources: Sequence[Variable], index: Integers) -> Variable:
        """The elements at places of the sources laid end to end, each flattened; of place -1 a zero."""
        whole = np.concatenate([source.data.reshape(-1) for source in sources] + [plain(self.elements.zero).reshape(1)])
        result = whole[index] if index.size else np.empty(index.shape, dtype=object)

        def pull(gradient: Array) -> list[tuple[Variable, Scattered]]:
            places, values = index.reshape(-1), gradient.reshape(-1)
            found: list[tuple[Variable, Scattered]] = []
            start = 0
            for source in sources:
                here = (places >= start) & (places < start + source.data.size)
                found.append((source, Scattered(places[here] - start, values[here])))
                start += source.data.size
            return found

        return self.derived(plain(result), sources, pull)

    def accumulate(self, base: Variable, index: Integers, source: Variable) -> Variable:
        """What is at flat places of ``base``, with the elements of ``source`` added that are meant for each."""
        data = base.data.copy().reshape(-1)
        add = self.elements.add
        for place, value in zip(index.reshape(-1).tolist(), source.data.reshape(-1), strict=True):
            data[place] = add(data[place], value)

        def pull(gradient: Array) -> list[tuple[Variable, Array]]:
            return [(base, gradient), (source, plain(gradient.reshape(-1)[index]).reshape(source.shape))]

        return self.derived(data.reshape(base.shape), (base, source), pull)

    def sum(self, x: Variable, dims: Sequence[int], keepdim: bool = False) -> Variable:
        """The sum over some dimensions."""
        result, kept = self._reduced(x.data, dims)

        def pull(gradient: Array) -> list[tuple[Variable, Array]]:
            return [(x, np.broadcast_to(gradient.reshape(kept), x.shape))]

        return self.derived(result.reshape(kept) if keepdim else result, (x,), pull)

    def fold(
        self, x: Variable, dims: Sequence[int], function: Callable[[Any, Any], Any], last: Callable[[Any], Any]
    ) -> Array:
        """What a function of two elements makes of each row, and another of that; the dimensions kept with size 1."""
        rows, kept = self.rows(x.data, dims)
        if rows.size == 0:
            return self.full(kept, self.elements.zero).data
        return plain(np.frompyfunc(last, 1, 1)(np.frompyfunc(function, 2, 1).reduce(rows, axis=-1))).reshape(kept)

    def _reduced(self, data: Array, dims: Sequence[int]) -> tuple[Array, tuple[int, ...]]:
        rows, kept = self.rows(data, dims)
        if rows.shape[-1] == 0:
            return self.full(rows.shape[:-1], self.elements.zero).data, kept
        return plain(self.elements.added.reduce(rows, axis=-1)), kept

    def rows(self, data: Array, dims: Sequence[int]) -> tuple[Array, tuple[int, ...]]:
        """An array with some dimensions laid end to end as the last, and the shape that keeps them with size 1."""
        kept = tuple(1 if axis in dims else size for axis, size in enumerate(data.shape))
        rest = tuple(size for axis, size in enumerate(data.shape) if axis not in dims)
        moved = np.moveaxis(data, tuple(dims), tuple(range(data.ndim - len(dims), data.ndim)))
        return moved.reshape(*rest, math.prod(data.shape[axis] for axis in dims)), kept

    # -- backwards -----------------------------------------------------------------------------------------------

    def backward(self, seeds: Sequence[tuple[Variable, Array]]) -> None:
        """Carry gradients from some variables to all that they were made of."""
        for variable, gradient in seeds:
            self._receive(variable, gradient)
        for variable in reversed(self._made):
            if variable.gradient is not None and variable.pull is not None:
                check_time()
                for operand, part in variable.pull(variable.gradient):
                    self._receive(operand, part)

    def _receive(self, variable: Variable, gradient: Array | Scattered) -> None:
        if variable.pull is None:
            return
        before = variable.gradient
        if isinstance(gradient, Scattered):
            if before is None:
                variable.gradient = np.full(variable.shape, NOTHING, dtype=object)
            elif not (variable.owns and before.flags.c_contiguous):
                variable.gradient = np.array(before, order="C")
            variable.owns = True
            self._scatter(variable.gradient, gradient)
            return
        part = self._unbroadcast(gradient, variable.shape)
        variable.gradient = part if before is None else plain(self.elements.added(before, part))
        variable.owns = before is not None

    def _scatter(self, total: Any, gradient: Scattered) -> None:
        """Add elements to those at their places."""
        flat, add = total.reshape(-1), self.elements.add
        for place, value in zip(gradient.places.tolist(), gradient.values, strict=True):
            flat[place] = value if flat[place] is NOTHING else add(flat[place], value)

    def _unbroadcast(self, gradient: Array, shape: tuple[int, ...]) -> Array:
        if gradient.shape == shape:
            return gradient
        if gradient.ndim < len(shape) or 0 in gradient.shape:
            gradient = np.broadcast_to(gradient, np.broadcast_shapes(gradient.shape, shape))
        lead = gradient.ndim - len(shape)
        dims = [axis for axis in range(gradient.ndim) if axis < lead or shape[axis - lead] == 1]
        return self._reduced(gradient, dims)[0].reshape(shape)


__all__ = ["UNDECIDED", "Decisions", "Tape", "Variable"]
