"""Stretches: the operations of a side between values that are aligned, run again from the values of the other side.

A culprit is one that introduces an error out of line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from whynan.compare.sides.double import is_floating
from whynan.compare.sides.operations import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from whynan.compare.sides.operations import Array, Operation, Side
    from whynan.compare.sides.values import ValueStore

Compute: TypeAlias = "Callable[[Operation, Mapping[str, Array]], list[Array]]"
Sort: TypeAlias = Literal["meaning", "kernel", "nonfinite", "decision", "unexplained"]
"""Why an error is out of line: in exact arithmetic the two differ; B's own rounding is too large; NaN or Inf stand in
other places; another truth value or whole number; or no exact value can be had."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The operations that a value is made by, in order, and the values from before that they read."""

    value: str
    operations: tuple[Operation, ...]
    cut: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Culprit:
    """An operation whose introduced error is out of line.

    ``a``, ``b`` are the values at ``index``, ``exact`` and ``exact_b`` those of A's and of B's operations in float64;
    ``bound`` is what is tolerated there. ``stretch`` is what makes
    the value in B, ``other`` what makes it in A.
    """

    value: str
    other_value: str
    operation: Operation
    stretch: Stretch
    other: Stretch
    sort: Sort
    index: tuple[int, ...]
    a: float | int | bool
    b: float | int | bool
    exact: float | int | bool | None
    exact_b: float | int | bool | None
    bound: float
    max_abs: float
    max_rel: float
    propagated_abs: float
    propagated_rel: float
    bad: int
    total: int
    given: Mapping[str, Array]
    made: Array


class SideRun:
    """A side that has run: its values, and which operation wrote each."""

    def __init__(self, side: Side, values: ValueStore) -> None:
        self.side = side
        self.values = values

    @cached_property
    def producers(self) -> dict[str, Operation]:
        """The operation that writes a value."""
        return {name: operation for operation in self.side.operations for name in operation.outputs}

    @cached_property
    def readers(self) -> dict[str, list[Operation]]:
        """The operations that read a value."""
        found: dict[str, list[Operation]] = {}
        for operation in self.side.operations:
            for name in dict.fromkeys(operation.inputs):
                found.setdefault(name, []).append(operation)
        return found

    def value(self, name: str) -> Array | None:
        """A value of the run, or a constant."""
        found = self.values.get(name)
        return self.side.constant(name) if found is None else found

    def stretch(self, value: str, known: Collection[str]) -> Stretch:
        """What makes a value from those that are known, from inputs and from constants."""
        operations: dict[int, Operation] = {}
        cut: dict[str, None] = {}
        pending = [value]
        while pending:
            name = pending.pop()
            maker = self.producers.get(name)
            if name != value and (name in known or maker is None):
                if name and self.side.constant(name) is None:
                    cut[name] = None
            elif maker is not None and maker.index not in operations:
                operations[maker.index] = maker
                pending += [read for read in maker.inputs if read]
        return Stretch(value, tuple(operations[index] for index in sorted(operations)), tuple(cut))


def operands_of(run: SideRun, operation: Operation) -> list[str]:
    """What an operation reads but whole numbers that stand fast: one framework has sizes and axes as settings."""
    held = ((name, run.side.constant(name)) for name in operation.inputs if name)
    return [name for name, constant in held if constant is None or is_floating(constant)]


def walk(operations: Iterable[Operation], given: Mapping[str, Array], compute: Compute) -> dict[str, Array]:
    """All values that some operations come to from those given; raises ``UnavailableError``."""
    values = dict(given)
    with np.errstate(all="ignore"):
        for operation in operations:
            found = compute(operation, {name: values[name] for name in operation.inputs if name in values})
            if len(found) < len(operation.outputs):
                raise UnavailableError(f"{operation.op} gave {len(found)} values")
            values.update(zip(operation.outputs, found, strict=False))
    return values
