"""Taint of finite values: what was computed from a birth, is finite, and is wrong.

From a birth to the first finite value, events are evaluated again in float64 (the shadow). A finite value that differs
from its shadow, or that should be NaN, is tainted, and so is an index, a boolean or an integer that float64 decides
otherwise, or that is made of a NaN; taint follows every value that depends on it until it reaches a sink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from whynan.capture.provenance.arrays import Event
from whynan.capture.provenance.dependence import Refused
from whynan.errors import UsageError
from whynan.floats import format_of
from whynan.records import Note, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.provenance.arrays import Arrays, Key
    from whynan.capture.provenance.label_sets import Array

RELATIVE: Final = 1e-3
LARGEST: Final = 1 << 22
"""Elements of an output that is evaluated in float64."""
RISING: Final = "rising"
"""Stands among the numbers to change elements to for a different one in each place, which ties none of them."""
_OTHERS: Final = (0, 1)


@dataclass(frozen=True, slots=True)
class Source:
    """An operand that holds births or taint: its array, the labels, whether they are taint, and what float64 has."""

    tensor: Array
    plane: Array
    tainted: bool
    shadow: Array | None = None


class Exact(Event, Protocol):
    """An event that can be evaluated in float64."""

    @property
    def swallows(self) -> bool:
        """Whether the operator may leave a NaN out of a floating-point result."""
        ...

    @property
    def reshapes(self) -> bool:
        """Whether the result has the elements of the one operand in their order."""
        ...

    def exact(self, key: Key, /, *, known: bool = True) -> Array | None:
        """One result in float64, the operands taken from their shadows where they have one (`known`)."""
        ...


def taint_plane(event: Exact, key: Key, output: Array, sources: Mapping[Key, Source]) -> Array | None:
    """The labels of the elements of a finite result that are wrong because of a birth; None where nothing is known."""
    arrays = event.arrays
    plane = dependence_mask(event, key, output, sources)
    if plane is None or any(source.tainted for source in sources.values()):
        return plane
    lost = _of_nan(event, key, output, sources)
    rest = arrays.label_plane(lost != 0, 0, plane)
    if not arrays.is_floating(output):
        _note_bad(event, output, lost, "NaN")
    if not (rest != 0).any() or math.prod(output.shape) > LARGEST:
        return lost
    judge = _wrong if arrays.is_floating(output) else _decided
    return event.labels.union(lost, judge(event, key, output, rest))


# -- which elements depend on which ------------------------------------------------------------------------------------


def dependence_mask(
    event: Exact, key: Key, output: Array, sources: Mapping[Key, Source], others: tuple[float | str, ...] = _OTHERS
) -> Array | None:
    """Which output elements depend on the sources: by position, or by changing the sources to some others."""
    labels = event.labels
    operands = event.pointwise_operands(key)
    if operands is not None:
        return _by_place(event, {at: sources[at] for at in operands if at in sources}, output)
    only = next(iter(sources.values()))
    if event.reshapes and math.prod(only.plane.shape) == math.prod(output.shape):
        return only.plane.reshape(output.shape)
    everything = labels.intern(labels.labels_of(s for source in sources.values() for s in labels.present(source.plane)))
    differs = event.arrays.empty_mask(output)
    # an index may happen to be the value that it is changed to: several are tried
    for other in others:
        try:
            again = event.result(event.run(lambda at, t, o=other: _changed(event.arrays, sources.get(at), t, o)), key)
        except Refused:  # nothing is known
            return None
        if again is None:
            return None
        if again.shape != output.shape:
            return event.arrays.label_plane(~event.arrays.empty_mask(output), everything)
        differs = differs | (again != output)
    return event.arrays.label_plane(differs, everything)


def _by_place(event: Exact, sources: Mapping[Key, Source], output: Array) -> Array | None:
    plane = event.arrays.label_plane(event.arrays.empty_mask(output), 0)
    for at, source in sources.items():
        own = event.arrays.broadcast_plane(source.plane, tuple(output.shape))
        if own is None:
            return None
        chosen = event.selection_mask(at)
        plane = event.labels.union(plane, own if chosen is None else event.arrays.label_plane(chosen, own))
    return plane


def _changed(arrays: Arrays, source: Source | None, tensor: Array, other: float | str) -> Array:
    if source is None:
        return tensor
    chosen = source.plane != 0
    if arrays.dtype_name(tensor.dtype) == "bool":
        return tensor ^ chosen
    return arrays.vary_where(tensor, chosen) if isinstance(other, str) else arrays.fill_where(tensor, chosen, other)


def nan_of(arrays: Arrays, sources: Mapping[Key, Source]) -> dict[Key, Source]:
    """Of the sources those elements that are NaN, were born so, and are no number in float64 either."""
    found: dict[Key, Source] = {}
    for key, source in sources.items():
        if source.tainted or not arrays.is_floating(source.tensor):
            continue
        nan = arrays.nan_mask(source.tensor)
        if source.shadow is not None and source.shadow.shape == nan.shape:
            nan = nan & arrays.nan_mask(source.shadow)
        plane = arrays.label_plane(nan, source.plane)
        if (plane != 0).any():
            found[key] = Source(source.tensor, plane, False)
    return found


def _of_nan(event: Exact, key: Key, output: Array, sources: Mapping[Key, Source]) -> Array:
    """The elements that a NaN, which float64 has too, was left out of or made into."""
    arrays = event.arrays
    empty = arrays.label_plane(arrays.empty_mask(output), 0)
    if arrays.is_floating(output) and not event.swallows:
        return empty
    left = nan_of(arrays, sources)
    if not left:
        return empty
    # whatever the NaN had been: a choice without it is none
    most = _limit(arrays, next(iter(left.values())).tensor, "max", 1.0)
    lost = dependence_mask(event, key, output, left, (*_OTHERS, most, -most, RISING))
    return empty if lost is None else lost


# -- what is wrong -----------------------------------------------------------------------------------------------------


def _wrong(event: Exact, key: Key, output: Array, plane: Array) -> Array:
    """Of the finite elements that depend on a birth those that differ from their shadow by more than rounding."""
    arrays = event.arrays
    nowhere = arrays.empty_mask(output)
    exact = event.exact(key)
    if exact is None or exact.shape != output.shape or arrays.dtype_name(exact.dtype) != "float64":
        return arrays.label_plane(nowhere, 0)
    bounds = RELATIVE, _limit(arrays, output, "tiny", 0.0)
    wrong = arrays.difference_mask(exact, output, *bounds)
    plain = event.exact(key, known=False) if wrong.any() else None
    if plain is not None and plain.shape == output.shape:
        # where the bad numbers are those of float64 too, it is the operation's own rounding
        wrong = wrong & (arrays.difference_mask(exact, plain, *bounds) | arrays.nan_mask(plain))
    # what should be NaN and is a number: a NaN was left out
    plane = arrays.label_plane(wrong | arrays.nan_mask(exact), plane)
    _note_difference(event, output, exact, plane)
    return plane


def _decided(event: Exact, key: Key, output: Array, plane: Array) -> Array:
    """Of the indices, booleans or integers that depend on a birth those that float64 decides otherwise."""
    arrays = event.arrays
    exact = event.exact(key)
    if exact is None or exact.shape != output.shape or arrays.is_floating(exact):
        if arrays.dtype_name(output.dtype) == "bool":
            # it is what it is whatever the size of an infinity
            return arrays.label_plane(arrays.empty_mask(output), 0)
        _note_bad(event, output, plane, "Inf")
        return plane
    differs = exact != output
    # equals may have another order in float64, where nothing is wrong with them
    plain = event.exact(key, known=False)
    if plain is not None and plain.shape == output.shape:
        differs = differs & (plain == output)
    plane = arrays.label_plane(differs, plane)
    _note_difference(event, output, exact, plane)
    return plane


def _limit(arrays: Arrays, tensor: Array, name: str, other: float) -> float:
    """A limit of a dtype, or another number where it is not known."""
    try:
        return getattr(format_of(arrays.dtype_name(tensor.dtype)), name)
    except UsageError:
        return other


# -- the path ----------------------------------------------------------------------------------------------------------


def _note_difference(event: Exact, output: Array, exact: Array, plane: Array) -> None:
    """Note where a finite value is another than in float64."""
    if (index := event.arrays.first_index(plane != 0)) is not None:
        found, meant = shown(event.arrays.value_at(output, index)), shown(event.arrays.value_at(exact, index))
        record_step(event, plane, Note.create("float64_differs", operator=event.name, result=found, meant=meant))


def _note_bad(event: Exact, output: Array, plane: Array, bad: str) -> None:
    """Note where a bad number became an index, a boolean or an integer."""
    if (index := event.arrays.first_index(plane != 0)) is not None:
        found = shown(event.arrays.value_at(output, index))
        record_step(event, plane, Note.create("made_of_bad", operator=event.name, result=found, bad=bad))


def record_step(event: Event, plane: Array, said: Note) -> None:
    """Note an event on the path of births that have no step yet that says this."""
    fields = ("operator",) if said.kind in ("drops_nan", "place_of_nan") else ("bad",)
    for label in event.labels.labels_in(plane):
        steps: list[Any] = event.labels.birth(label).steps
        if not any(link.typed_summary.is_like(said, *fields) for link in steps):
            steps.append(event.chain_link(said))
