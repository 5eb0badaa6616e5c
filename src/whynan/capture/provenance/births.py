"""Births as they are told: literals named after what passed them on, masks in other words, the steps of a chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.floats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from whynan.capture.provenance.arrays import Event
    from whynan.capture.provenance.label_sets import Array, LabelSets
    from whynan.records import ChainLink
    from whynan.traces import Birth

SEPARATE: Final = 256
"""So many births of one event, kind and place are told apart."""
STEPS_KEPT: Final = 6
_EXTREMES: Final = tuple(FORMATS[name].max for name in ("float16", "bfloat16", "float32", "float64"))


def add_step(
    labels: LabelSets, carried: Iterable[int], link: Callable[[], ChainLink], *, literals: bool = False
) -> None:
    """Note an event on the path of the births that it carries on, and of ``literals``; only so many are kept."""
    step: ChainLink | None = None
    for label in carried:
        birth = labels.birth(label)
        if birth.label_kind == "literal" and not literals:
            continue
        if len(birth.steps) < STEPS_KEPT:
            step = step or link()
            birth.steps.append(step)
        else:
            birth.steps_omitted += 1


def masks_of_limits(event: Event, operands: Iterable[Array], born: Array, output: Array) -> Array | None:
    """Where what overflowed were masks: the least number of a format, cast to a narrower one or added to.

    A program that fills with it writes an infinity in other words. `operands` are in float64. None if nowhere.
    """
    found = event.arrays.empty_mask(output)
    for wide in operands:
        extreme = event.arrays.empty_mask(wide)
        for limit in _EXTREMES:
            extreme = extreme | (abs(wide) == limit)
        # of the sign that it has: an infinity of the other is not its own
        own, sign = (event.arrays.broadcast_plane(each, tuple(output.shape)) for each in (extreme, wide))
        if own is None or sign is None:
            return None
        found = found | (own & (sign * output > 0))
    found = found & born & ~event.arrays.nan_mask(output)
    return found if found.any() else None


class NamedLiterals:
    """Literals that are named after the event that first passes them on, each place once."""

    def __init__(self, labels: LabelSets) -> None:
        self._labels = labels
        self._known: dict[object, int] = {}

    def rename(
        self, event: Event, carried: Array, where: Array, place: object, derived: Callable[[Birth, Array], Birth]
    ) -> Array:
        """The plane of a result with its literals renamed where a mask is true.

        `place` stands for the event; `derived` makes the record of a literal of another at the elements of a mask.
        """
        for set_id in self._labels.present(event.arrays.label_plane(where, carried)):
            sources = [self._labels.birth(label) for label in sorted(self._labels.sets[set_id])]
            if not self._labels.is_literal(set_id) or any(source.named for source in sources):
                continue
            key = (sources[-1].label, place)
            mask = where & (carried == set_id)
            if key not in self._known:
                self._known[key] = self._labels.add(derived(sources[-1], mask))
            carried = event.arrays.label_plane(mask, self._known[key], carried)
        return carried
