"""The operations around a birth: what its operands were computed from, and what was computed from it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Number = float | int


class Part(BaseModel):
    """Frozen base of what is told of a neighbourhood; infinities and NaN are written as strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Argument(Part):
    """One argument of an operation, by its name in the schema.

    Of a tensor ``event`` is the ordinal of the event that wrote it, None for what came from outside, and ``elements``
    a number that it shares with whatever is the same elements, in any shape. ``min`` and ``max`` are None where its
    values were not known any more. Of a number ``value`` is it, of a list of numbers ``numbers``, and of an equation
    ``text``.
    """

    name: str
    event: int | None = None
    elements: int | None = None
    value: Number | bool | None = None
    numbers: tuple[Number | bool, ...] | None = None
    text: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    min: Number | None = None
    max: Number | None = None


class Operation(Part):
    """One event of a neighbourhood, by its ordinal; ``shape`` is that of what it wrote.

    ``hops`` is how far it is from the event in the middle: above 0 it was computed from it, below 0 the middle, or what
    was computed from it, was computed from this.
    """

    event: int
    op: str
    hops: int
    arguments: tuple[Argument, ...] = ()
    shape: tuple[int, ...] | None = None


class Selection(Part):
    """An operation that leaves an element out: of its argument ``side``, by a ``mask`` as the source writes it."""

    op: str
    side: str
    mask: str | None = None
    line: int | None = None
    function: str | None = None
    """The function that it stands in."""


class Neighbourhood(Part):
    """The operations around an event, in order of execution, the event itself among them.

    The event in the ``middle`` is that of the birth, or the forward event whose derivative the birth's is. ``gone``:
    how many events are missing that would have belonged to it, because what they read was not held any more.
    ``left_out``: of a birth in the backward, or one that comes back there, what left the forward's result out.
    """

    dialect: Literal["aten", "onnx"]
    middle: int
    operations: tuple[Operation, ...]
    gone: int = 0
    left_out: Selection | None = None
