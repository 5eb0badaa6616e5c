"""A side of a comparison: a program as operations in order, each of which can be run again on other operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from whynan.compare.sides.values import ValueStore
    from whynan.records import Site

Array: TypeAlias = "NDArray[Any]"


class UnavailableError(Exception):
    """An operation that cannot be run again, or not in float64; the text says why."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a side.

    ``inputs`` are all values that it reads, each once for each place, empty where one is left out; ``outputs`` what it
    writes. ``node`` is its name in the exported program that a model came from. ``settings`` are its attributes and
    scalars, as text that is equal where they are; ``attributes`` the same one by one, for a reader.
    """

    index: int
    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    node: str | None = None
    module: str | None = None
    settings: str = ""
    attributes: Mapping[str, str] = field(default_factory=lambda: {})
    holds_bodies: bool = False
    elementwise: bool = False
    """Whether an element of what it gives depends on one of each operand."""


class Side(Protocol):
    """One of two programs that are compared."""

    @property
    def label(self) -> str:
        """What the user calls it."""
        ...

    @property
    def kind(self) -> Literal["onnx", "torch"]:
        """Whose operators it has."""
        ...

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of what it is fed with."""
        ...

    @property
    def input_values(self) -> tuple[str, ...]:
        """The values that they are, one for each of ``inputs``."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names that its outputs have for the user."""
        ...

    @property
    def output_values(self) -> tuple[str, ...]:
        """The values that leave it, one for each of ``outputs``."""
        ...

    @property
    def operations(self) -> Sequence[Operation]:
        """In the order of execution, without those that only hold a constant."""
        ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """Further names of values."""
        ...

    @property
    def roundoff(self) -> float | None:
        """The unit roundoff of the arithmetic that was asked for; None where the dtypes of its values tell it."""
        ...

    def constant(self, name: str) -> Array | None:
        """The elements of a constant; None for what is none."""
        ...

    def run(self, feeds: Mapping[str, Array], values: ValueStore) -> None:
        """Run it once, and keep every value; raises ``UnavailableError`` where it does not run."""
        ...

    def evaluate(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """An operation on other operands, as this side computes it; constants need not be given."""
        ...

    def exact(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """An operation in float64; constants need not be given."""
        ...

    def site(self, operation: Operation) -> Site | None:
        """The place in the user's source, where it is known."""
        ...
