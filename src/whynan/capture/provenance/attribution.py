"""Taint attribution: for every bad element of an event's output which label it carries on, or that it was born here.

Three ways, cheapest first: pointwise operators join the labels at the same place; operators that only move elements
move the label planes; every other operator is asked by intervention, its bad operand elements replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from whynan.capture.provenance.dependence import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whynan.capture.provenance.arrays import Arrays, Carrier, Event, Key
    from whynan.capture.provenance.label_sets import Array

MAX_SEPARATE: Final = 8
KINDS: Final = ("explains", "literal", "saved")


@dataclass(slots=True)
class Verdict:
    """One output: the set ids that its bad elements carry on, what was born here, and what the born were made from.

    `sources`: by element the set id of what it was made from, where that is known so exactly.
    """

    carried: Array
    born: Array
    causes: frozenset[int] = field(default_factory=lambda: frozenset[int]())
    sources: Array | None = None

    def causes_of(self, part: Array, event: Event) -> frozenset[int]:
        """What some of the born elements were made from."""
        if self.sources is None or not self.causes:
            return self.causes
        return event.labels.labels_in(event.arrays.label_plane(part, self.sources)) & self.causes


def attribute(event: Event, key: Key, output: Array) -> Verdict:
    """Explain the bad elements of one output."""
    bad = event.arrays.bad_mask(output)
    if not any(carrier.planes for carrier in event.carriers.values()):
        return _without_carriers(event, key, output, bad)
    return (
        _pointwise(event, key, output, bad) or _moved(event, key, output, bad) or _experiment(event, key, output, bad)
    )


def _without_carriers(event: Event, key: Key, output: Array, bad: Array) -> Verdict:
    nothing = event.arrays.empty_mask(output)
    carried = event.arrays.label_plane(nothing, 0)
    if not event.scalar_literal:
        return Verdict(carried, bad)
    copied = bad & _repeated(event, key, output) if event.is_repeatable else bad
    carried, made = _with_scalar(event, carried, copied, output)
    causes = event.labels.sets[event.scalar_literal] if made.any() else frozenset[int]()
    return Verdict(carried, made | (bad & ~copied), causes)


def _repeated(event: Event, key: Key, output: Array) -> Array:
    """Where the operator gives the same value again: what a constant does not explain is no copy of it."""
    try:
        again = event.result(event.run(lambda _, tensor: tensor), key)
    except Refused:
        again = None
    if again is None:
        return ~event.arrays.empty_mask(output)
    return (again == output) | (event.arrays.nan_mask(again) & event.arrays.nan_mask(output))


def _with_scalar(event: Event, carried: Array, rest: Array, output: Array) -> tuple[Array, Array]:
    """What is still unexplained comes from a non-finite scalar: Inf is its copy, NaN is made from it."""
    nothing = event.arrays.empty_mask(output)
    made = nothing if event.is_literal_nan else rest & event.arrays.nan_mask(output)
    return event.arrays.label_plane(rest & ~made, event.scalar_literal, carried), made


# -- element by element, and by movement -------------------------------------------------------------------------------


def _beside(carrier: Carrier, output: Array, arrays: Arrays) -> Carrier:
    """A carrier on the device of what it is copied to."""
    tensor = arrays.beside(carrier.tensor, output)
    if tensor is carrier.tensor:
        return carrier
    planes = {kind: getattr(carrier, kind) for kind in KINDS}
    moved = {kind: arrays.beside(plane, output) for kind, plane in planes.items() if plane is not None}
    return replace(carrier, tensor=tensor, **moved)


def _pointwise(event: Event, key: Key, output: Array, bad: Array) -> Verdict | None:
    arrays, operands = event.arrays, event.pointwise_operands(key)
    if operands is None:
        return None
    carriers = {k: _beside(event.carriers[k], output, arrays) for k in operands if k in event.carriers}
    merged: dict[str, Array | None] = dict.fromkeys(KINDS)
    literal_nan = arrays.empty_mask(output)
    decided = _nan_alone(event, carriers, key, output)
    for at, carrier in carriers.items():
        chosen = event.selection_mask(at)
        for kind in KINDS:
            own: Array | None = getattr(carrier, kind)
            if own is None:
                continue
            plane = arrays.broadcast_plane(own, tuple(output.shape))
            if plane is None:
                return None
            if chosen is not None:
                plane = arrays.label_plane(chosen, plane)
            elif kind == "literal" and event.keeps_signs(carrier.tensor):
                # an infinity of the other sign is not this one
                plane = arrays.label_plane(arrays.opposite_sign_mask(carrier.tensor, output) & bad, 0, plane)
            elif decided is not None and kind != "saved":
                plane = arrays.label_plane(decided & ~arrays.nan_mask(carrier.tensor), 0, plane)
            before = merged[kind]
            merged[kind] = plane if before is None else event.labels.union(before, plane)
            if kind == "literal" and carrier.literal_nan:
                literal_nan = literal_nan | (arrays.nan_mask(carrier.tensor) & (own != 0))
    return _decide(event, output, bad, merged, literal_nan)


def _nan_alone(event: Event, carriers: Mapping[Key, Carrier], key: Key, output: Array) -> Array | None:
    """Where one of several bad operands is NaN, and so is the output, and the others alone would do no harm there.

    An infinity that the NaN only hides is none of these: with the NaN mended the result would be bad all the same.
    """
    if len(carriers) < 2:
        return None
    arrays = event.arrays
    found, others = arrays.empty_mask(output), arrays.empty_mask(output)
    for at, carrier in carriers.items():
        if carrier.explains is not None and at not in event.gone:
            nan, known = arrays.nan_mask(carrier.tensor), carrier.explains != 0
            if arrays.broadcast_plane(known, tuple(output.shape)) is None:
                return None
            found = found | (nan & known)
            others = others | (known & ~nan)
    found = found & arrays.nan_mask(output)
    hidden = found & others
    return found & ~(hidden & _bad_without_nan(event, key, output)) if hidden.any() else found


def _bad_without_nan(event: Event, key: Key, output: Array) -> Array:
    """Which elements would be bad if what is NaN among the operands were a number."""

    def mended(at: Key, tensor: Array) -> Array:
        carrier = event.carriers.get(at)
        if carrier is None or carrier.explains is None:
            return tensor
        return event.arrays.fill_where(tensor, event.arrays.nan_mask(tensor) & (carrier.explains != 0), 1)

    try:
        return _bad_after(event, "without NaN", key, output, mended)
    except Refused:
        return event.arrays.empty_mask(output)


def _moved(event: Event, key: Key, output: Array, bad: Array) -> Verdict | None:
    planes: dict[str, Array | None] = {}
    for kind in KINDS:
        carried = any(getattr(carrier, kind) is not None for carrier in event.carriers.values())
        planes[kind] = event.moved_plane(kind, key) if carried else None
        if carried and planes[kind] is None:
            return None
    # a moved literal is a copy, whatever its value
    return _decide(event, output, bad, planes, ~event.arrays.empty_mask(output))


def _decide(event: Event, output: Array, bad: Array, planes: Mapping[str, Array | None], literal_nan: Array) -> Verdict:
    arrays = event.arrays
    born = arrays.empty_mask(output)
    carried = sources = arrays.label_plane(born, 0)
    rest = bad
    if (explains := planes["explains"]) is not None:
        carried = arrays.label_plane(rest, explains)
        rest = rest & (carried == 0)
    if (saved := planes["saved"]) is not None:
        born = rest & (saved != 0)
        rest = rest & ~born
        sources = arrays.label_plane(born, saved)
    if (literal := planes["literal"]) is not None:
        from_literal = rest & (literal != 0)
        made = from_literal & arrays.nan_mask(output) & ~literal_nan
        if event.scalar_literal and event.is_literal_nan:
            # it is a copy of the scalar's, whatever the operand was that has been overwritten since
            made = born
        carried = arrays.label_plane(from_literal & ~made, literal, carried)
        born = born | made
        rest = rest & ~from_literal
        sources = arrays.label_plane(made, literal, sources)
    if event.scalar_literal:
        carried, rest = _with_scalar(event, carried, rest, output)
        sources = arrays.label_plane(rest, event.scalar_literal, sources)
    return Verdict(carried, born | rest, event.labels.labels_in(sources), sources)


# -- by intervention ---------------------------------------------------------------------------------------------------


def _bad_after(event: Event, name: str, key: Key, output: Array, replace: Callable[[Key, Array], Array]) -> Array:
    """Which output elements are bad on replaced operands; `name` tells the replacements of one event apart."""
    if name not in event.answers:
        event.answers[name] = event.run(replace)
    found = event.result(event.answers[name], key)
    if found is None or found.shape != output.shape or not event.arrays.is_floating(found):
        raise Refused(name)
    return event.arrays.bad_mask(found)


def _bad_with(event: Event, name: str, key: Key, output: Array, keep: Callable[[Carrier], Array | None]) -> Array:
    """Which output elements are bad when only the operand elements chosen by `keep` stay bad."""

    def replaced(at: Key, tensor: Array) -> Array:
        carrier, bad = event.carriers.get(at), None
        if at in event.gone and event.arrays.is_floating(tensor):
            # the event has overwritten it: what it wrote there must not count as read
            bad = event.arrays.bad_mask(tensor)
        elif carrier is not None:
            bad = _known(carrier)
        if bad is None:
            return tensor
        kept = None if carrier is None else keep(carrier)
        return event.arrays.fill_where(tensor, bad if kept is None else bad & ~kept, 1)

    return _bad_after(event, name, key, output, replaced)


def _known(carrier: Carrier) -> Array | None:
    found: Array | None = None
    for plane in carrier.planes:
        found = plane != 0 if found is None else found | (plane != 0)
    return found


def _by_them_alone(event: Event, key: Key, output: Array) -> Array:
    """Which output elements the known bad operand elements make bad when every other element is 1."""

    def alone(at: Key, tensor: Array) -> Array:
        if not event.arrays.is_floating(tensor):
            return tensor
        carrier = event.carriers.get(at)
        nowhere = event.arrays.empty_mask(tensor)
        kept = nowhere if carrier is None or carrier.explains is None else carrier.explains != 0
        return event.arrays.fill_where(tensor, ~kept, 1)

    return _bad_after(event, "alone", key, output, alone)


def _experiment(event: Event, key: Key, output: Array, bad: Array) -> Verdict:
    """Replace bad operand elements and look which output elements recover."""
    try:
        return _attribute_by_experiment(event, key, output, bad)
    except Refused:  # replaced operands may make a singular matrix: all labels to all bad elements
        return _attribute_by_default(event, output, bad)


def _sets(event: Event, kind: str) -> list[int]:
    planes = [getattr(carrier, kind) for carrier in event.carriers.values()]
    return sorted({s for plane in planes if plane is not None for s in event.labels.present(plane)})


def _attribute_by_default(event: Event, output: Array, bad: Array) -> Verdict:
    """An infinity may be the literal that was there, a NaN is taken for one that was computed from it."""
    arrays, labels = event.arrays, event.labels
    nothing, whole = arrays.empty_mask(output), labels.intern(labels.labels_of(_sets(event, "explains")))
    if whole:
        return Verdict(arrays.label_plane(bad, whole), nothing)
    literals, saved = labels.labels_of(_sets(event, "literal")), labels.labels_of(_sets(event, "saved"))
    copied = bad & ~arrays.nan_mask(output) if literals and not saved and event.may_copy else nothing
    return Verdict(arrays.label_plane(copied, labels.intern(literals)), bad & ~copied, literals | saved)


def _attribute_by_experiment(event: Event, key: Key, output: Array, bad: Array) -> Verdict:
    arrays, labels, carriers = event.arrays, event.labels, event.carriers.values()
    sets, literals, saved = (_sets(event, kind) for kind in KINDS)
    whole, carried = labels.intern(labels.labels_of(sets)), arrays.label_plane(arrays.empty_mask(output), 0)

    def bad_with(name: str, keep: Callable[[Carrier], Array | None]) -> Array:
        return _bad_with(event, name, key, output, keep)

    reproduced = bad if event.is_deterministic else bad_with("all", _known)
    still = bad_with("none", lambda _: None) & bad
    if sets and still.any():
        # bad without the bad operands too: theirs all the same where they alone suffice
        still = still & ~_by_them_alone(event, key, output)
    rest = bad & ~still & reproduced
    born = (bad & ~reproduced) | still
    if event.scalar_literal:
        # a scalar argument stays in every rerun: its own value is a copy, a NaN that an Inf makes is made here
        copied = still if event.is_literal_nan else still & ~arrays.nan_mask(output)
        carried, born = arrays.label_plane(copied, event.scalar_literal, carried), born & ~copied
    if len(sets) == 1 and not literals and not saved:
        return Verdict(arrays.label_plane(rest, whole, carried), born)
    causes = frozenset[int]()
    for number in sets[:MAX_SEPARATE]:
        hit = rest & bad_with(f"set {number}", lambda c, s=number: None if c.explains is None else c.explains == s)
        carried = labels.union(carried, arrays.label_plane(hit, number))
    rest = rest & (carried == 0)
    if saved and rest.any():
        made = rest & bad_with("saved", lambda c: None if c.saved is None else c.saved != 0)
        born, rest = born | made, rest & ~made
        causes |= labels.labels_of(saved) if made.any() else causes
    if literals and rest.any():
        hit = rest & bad_with("literals", lambda c: None if c.literal is None else c.literal != 0)
        made = arrays.empty_mask(output) if any(c.literal_nan for c in carriers) else hit & arrays.nan_mask(output)
        carried = arrays.label_plane(hit & ~made, labels.intern(labels.labels_of(literals)), carried)
        born, rest = born | made, rest & ~hit
        causes |= labels.labels_of(literals) if made.any() else causes
    if rest.any():
        # bad only together (or more sets than are asked apart)
        if whole:
            carried = arrays.label_plane(rest, whole, carried)
        else:
            born = born | rest
            causes |= labels.labels_of((*literals, *saved))
    return Verdict(carried, born, causes)
