"""A culprit: an operation that introduces an error out of line, with its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.compare.sides.operations import Array, Operation
    from whynan.compare.stretches import Stretch

Sort: TypeAlias = Literal["meaning", "kernel", "nonfinite", "decision", "unexplained"]
"""Why an error is out of line: in exact arithmetic the two differ; B's own rounding is too large; NaN or Inf stand in
other places; another truth value or whole number; or no exact value can be had."""


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
