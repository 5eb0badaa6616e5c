"""What provenance asks of a framework: its arrays, and executed operations that can be run again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.capture.provenance.label_sets import Array, LabelSets
    from whynan.records import ChainLink, Note

Key: TypeAlias = Any
"""Stands for one array among the operands or the results of an event."""
Shape: TypeAlias = "tuple[int, ...]"


class Arrays(Protocol):
    """The operations on arrays; the module of a framework that has them is one."""

    def bad_mask(self, tensor: Array, /) -> Array:
        """Which elements are NaN or infinite."""
        ...

    def nan_mask(self, tensor: Array, /) -> Array:
        """Which elements are NaN."""
        ...

    def is_floating(self, tensor: Array, /) -> bool:
        """Whether an array can hold a bad number."""
        ...

    def empty_mask(self, tensor: Array, /) -> Array:
        """A mask of the shape of an array, true nowhere."""
        ...

    def label_plane(self, mask: Array, chosen: Array | int, other: Array | int = 0, /) -> Array:
        """A plane: the labels `chosen` where a mask is true, and `other` elsewhere."""
        ...

    def beside(self, array: Array, like: Array, /) -> Array:
        """The same array on the device of another one."""
        ...

    def broadcast_plane(self, array: Array, shape: Shape, /) -> Array | None:
        """A mask or plane under broadcasting; None where it does not fit."""
        ...

    def fill_where(self, tensor: Array, mask: Array, number: float, /) -> Array:
        """A copy of an array with a number where a mask is true."""
        ...

    def vary_where(self, tensor: Array, mask: Array, /) -> Array:
        """A copy of an array with a different number from 0 to 1 at each place where a mask is true."""
        ...

    def opposite_sign_mask(self, first: Array, second: Array, /) -> Array:
        """Where one number is the other with its sign turned."""
        ...

    def first_index(self, mask: Array, /) -> Shape | None:
        """The first true element in row-major order."""
        ...

    def value_at(self, tensor: Array, index: Shape, /) -> float | int | bool | str | None:
        """The value of one element."""
        ...

    def dtype_name(self, dtype: Any, /) -> str:
        """A dtype as reports name it."""
        ...

    def difference_mask(self, exact: Array, tensor: Array, relative: float, least: float, /) -> Array:
        """Where an array is farther than both bounds from its exact numbers in float64, and these are finite."""
        ...


@dataclass(slots=True)
class Carrier:
    """The labels of one operand: those that explain a bad result, literals, and those kept in saved tensors."""

    tensor: Array
    explains: Array | None = None
    literal: Array | None = None
    literal_nan: bool = False
    saved: Array | None = None

    @property
    def planes(self) -> list[Array]:
        """Those that there are."""
        return [plane for plane in (self.explains, self.literal, self.saved) if plane is not None]


class Event(Protocol):
    """One executed operation, which can be run again on other operands."""

    answers: dict[str, Any]
    """Results of reruns that were asked for already."""

    @property
    def labels(self) -> LabelSets:
        """All labels of the trace."""
        ...

    @property
    def arrays(self) -> Arrays:
        """The framework's arrays."""
        ...

    @property
    def name(self) -> str:
        """The operator, as sentences name it."""
        ...

    @property
    def carriers(self) -> Mapping[Any, Carrier]:
        """The operands that hold bad elements."""
        ...

    @property
    def gone(self) -> frozenset[Any]:
        """The operands that the event has overwritten."""
        ...

    @property
    def scalar_literal(self) -> int:
        """The label set of a number among the arguments that is not finite; 0 for none."""
        ...

    @property
    def is_literal_nan(self) -> bool:
        """Whether a NaN in the result is a copy of that number."""
        ...

    @property
    def is_repeatable(self) -> bool:
        """Whether the event can be run again on its operands to see if it gives its result again."""
        ...

    @property
    def is_deterministic(self) -> bool:
        """Whether the event is known to give its results again without being asked."""
        ...

    @property
    def may_copy(self) -> bool:
        """Whether an infinity is taken for a literal of the operands where the event cannot be run again."""
        ...

    def pointwise_operands(self, key: Key, /) -> Sequence[Key] | None:
        """The operands that meet element by element in one result; None where the operator is not pointwise."""
        ...

    def selection_mask(self, key: Key, /) -> Array | None:
        """Of an operator that chooses among its operands: where this one was chosen."""
        ...

    def keeps_signs(self, tensor: Array, /) -> bool:
        """Whether an infinity of an operand passes with its sign, so that one of the other sign is not its own."""
        ...

    def run(self, replace: Callable[[Key, Array], Array], /) -> Any:
        """Run the event again on replaced operands; raises ``Refused`` where that cannot be had."""
        ...

    def result(self, results: Any, key: Key, /) -> Array | None:
        """One array of the results of a run."""
        ...

    def moved_plane(self, kind: str, key: Key, /) -> Array | None:
        """The plane of one kind of the carriers' labels, where the operator has moved it to.

        None where the operator does not only move elements, or that cannot be had.
        """
        ...

    def chain_link(self, said: Note, /) -> ChainLink:
        """A step in the chain of a birth that this event carries on."""
        ...
