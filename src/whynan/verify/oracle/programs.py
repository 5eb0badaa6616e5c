"""A program without control flow: what a formula did, operation by operation, in one dialect."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of a name in a program: an input, a constant or the output of a step."""

    name: str


@dataclass(frozen=True, slots=True)
class Step:
    """One operation as it was executed: ``aten.log_softmax.int`` or the op type of an ONNX node.

    ``arguments`` are by the names of the operator's schema (of an ONNX node its formal inputs and attributes), each a
    ``Ref``, a number, a boolean, a string, None, or a list of these. ``outputs`` are the names that it wrote, with
    their dtypes and shapes; in-place operations are written out, so that no name is written twice. ``result`` holds
    the values that it had in the run where they are not to be computed again: random numbers, masks, indices.
    """

    op: str
    arguments: Mapping[str, Any]
    outputs: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    result: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """Inputs by name, constants by name (arrays), steps in order, and the names of the outputs.

    Of an input ``dtypes`` and ``shapes`` tell what it was; ``differentiable`` are those that a gradient is wanted of.
    """

    dialect: Literal["aten", "onnx"]
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    differentiable: frozenset[str] = frozenset()
