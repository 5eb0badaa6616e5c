"""Alignment: which value of one run is the same quantity as which of the other, and by what that is known."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from whynan.compare.fingerprints import distance, nearest_pairs
from whynan.compare.sides.double import is_floating
from whynan.compare.spelling import spelled
from whynan.compare.stretches import operands_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from whynan.compare.sides.operations import Array, Operation
    from whynan.compare.stretches import SideRun

Way: TypeAlias = Literal["input", "metadata", "name", "module", "topology", "fingerprint", "output"]
_NEAR: Final = 0.5
"""Weights that are further apart, relative to their size, are not those of one layer."""
_NUMBERED: Final = re.compile(r"^(?:[a-z]+_?)?\d+$")
"""Names that an exporter makes by counting."""
_DOUBT: Final = 1e-3
"""A value that is this much nearer to another one than to that of its own name."""


@dataclass(slots=True)
class Alignment:
    """Pairs of values: of each value of B that of A, and by what it was found."""

    pairs: dict[str, tuple[str, Way]] = field(default_factory=lambda: {})
    taken: set[str] = field(default_factory=lambda: set[str]())
    """The values of A that have a partner."""

    def add(self, b: str, a: str, way: Way, *, several: bool = False) -> bool:
        """Align two values, where neither has a partner yet; with `several` that of A may have another one as well."""
        if b in self.pairs or (a in self.taken and not several):
            return False
        self.pairs[b] = a, way
        self.taken.add(a)
        return True

    def remove(self, b: str) -> None:
        """Take a pair apart."""
        self.taken.discard(self.pairs.pop(b)[0])

    def counts(self, of: Iterable[str]) -> dict[str, int]:
        """How many of some values of B were aligned by what."""
        found: dict[str, int] = {}
        for name in of:
            if name in self.pairs:
                way = self.pairs[name][1]
                found[way] = found.get(way, 0) + 1
        return found


class Aligner:
    """Aligns two runs.

    Args:
        a: the first run.
        b: the second.
        inputs: of each input value of B that of A.
        outputs: of each output value of B that of A.
    """

    def __init__(self, a: SideRun, b: SideRun, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        self._a, self._b = a, b
        self._found = Alignment()
        self._ends = outputs
        for there, here in inputs.items():
            self._found.add(there, here, "input")

    def align(self) -> Alignment:
        """The pairs, by the surest way first."""
        self._by_names()
        self._distrust()
        for there, here in self._ends.items():
            if self._b.producers.get(there) and self._a.producers.get(here):
                # what A's value is by its name may not be what leaves B
                self._pair(there, here, "output", exact_shape=False, several=True)
        self._by_module()
        self._by_topology(strict=True)
        self._by_fingerprint()
        self._uncross()
        self._by_topology(strict=False)
        self._backwards()
        self._by_topology(strict=False)
        return self._found

    # -- names ------------------------------------------------------------------------------------------------------

    def _by_names(self) -> None:
        """By the names that the exporter left, then by those of values."""
        known = {**_nodes(self._a), **{n: n for n in self._a.producers}, **self._a.side.aliases}
        for node, there in _nodes(self._b).items():
            if (here := known.get(node)) is not None:
                self._pair(there, here, "metadata")
        for there in (*self._b.producers, *self._b.side.aliases):
            value = self._b.side.aliases.get(there, there)
            here = self._a.side.aliases.get(there, there)
            if here in self._a.producers and value in self._b.producers:
                self._pair(value, here, "name")

    def _distrust(self) -> None:
        """Take apart what has one name and is clearly not one number.

        A number that an exporter gave as a name says nothing by itself: there the operation and its operands have to
        agree as well. Any other name is believed, unless another value has these very numbers.
        """
        others = {n: v for n in self._a.producers if (v := self._a.value(n)) is not None}
        for there, (here, way) in list(self._found.pairs.items()):
            if way not in ("metadata", "name"):
                continue
            value, ours = self._b.value(there), others.get(here)
            if value is None or ours is None or distance(value, ours) < _DOUBT:
                continue
            if (way == "name" and _NUMBERED.search(there) and not self._consistent(there, here)) or any(
                o.shape == value.shape and value.size > 1 and distance(value, o) < _DOUBT**2 for o in others.values()
            ):
                self._found.remove(there)

    def _consistent(self, there: str, here: str) -> bool:
        """Whether two values are made by one operator of operands that are aligned."""
        one, other = self._a.producers[here], self._b.producers[there]
        if spelled(one.op) != spelled(other.op) or len(one.inputs) != len(other.inputs):
            return False
        pairs = zip(other.inputs, one.inputs, strict=True)
        return all(
            self._b.side.constant(theirs) is not None or self._found.pairs.get(theirs, ("",))[0] == ours
            for theirs, ours in pairs
            if theirs
        )

    def _by_module(self) -> None:
        """By the module and the operator, where both sides have as many of them there."""
        ours, theirs = _by_place(self._a), _by_place(self._b)
        for place, here in ours.items():
            there = theirs.get(place, [])
            if len(here) == len(there):
                for one, other in zip(here, there, strict=True):
                    self._pair(other.outputs[0], one.outputs[0], "module")

    # -- topology ---------------------------------------------------------------------------------------------------

    def _by_topology(self, *, strict: bool) -> None:
        """By operator and operands; strictly also by constants and attributes."""
        waiting: dict[object, list[Operation]] = {}
        for operation in self._a.side.operations:
            if any(name not in self._found.taken for name in operation.outputs):
                key = self._key(self._a, operation, {name: name for name in self._found.taken}, strict)
                waiting.setdefault(key, []).append(operation)
        changed = False
        for operation in self._b.side.operations:
            if all(name in self._found.pairs for name in operation.outputs):
                continue
            ours = {there: here for there, (here, _) in self._found.pairs.items()}
            key = self._key(self._b, operation, ours, strict)
            partner = next((one for one in waiting.get(key, ()) if strict or self._alike(one, operation)), None)
            if key is None or partner is None:
                continue
            for there, here in zip(operation.outputs, partner.outputs, strict=False):
                changed = self._pair(there, here, "topology") or changed
            waiting[key].remove(partner)
        if changed:
            self._by_topology(strict=strict)

    def _key(self, run: SideRun, operation: Operation, aligned: Mapping[str, str], strict: bool) -> object:
        """What two operations that do the same have in common; None while an operand is not aligned."""
        parts: list[object] = [spelled(operation.op)]
        for name in operation.inputs if strict else operands_of(run, operation):
            constant = run.side.constant(name) if name else None
            if not name:
                parts.append("")
            elif constant is not None:
                parts.append(_identity(constant) if strict else constant.shape)
            elif name in aligned:
                parts.append(aligned[name])
            else:
                return None
        if strict:
            parts.append(operation.settings)
        return tuple(parts)

    def _alike(self, one: Operation, other: Operation) -> bool:
        """Whether the weights of two operations may be those of one layer."""
        for here, there in zip(operands_of(self._a, one), operands_of(self._b, other), strict=False):
            ours, theirs = self._a.side.constant(here), self._b.side.constant(there)
            if ours is not None and theirs is not None and is_floating(ours) and distance(theirs, ours) > _NEAR:
                return False
        return True

    def _backwards(self) -> None:
        """From what is aligned to what it is made of, along the same operators."""
        for operation in reversed(self._b.side.operations):
            made = next((name for name in operation.outputs if name in self._found.pairs), None)
            maker = None if made is None else self._a.producers.get(self._found.pairs[made][0])
            if maker is None or spelled(maker.op) != spelled(operation.op):
                continue
            if len(maker.inputs) != len(operation.inputs):
                continue
            for there, here in zip(operation.inputs, maker.inputs, strict=True):
                one, other = self._a.producers.get(here), self._b.producers.get(there)
                if one is not None and other is not None and spelled(one.op) == spelled(other.op):
                    self._pair(there, here, "topology")

    # -- fingerprints -----------------------------------------------------------------------------------------------

    def _by_fingerprint(self) -> None:
        """By the numbers: each the nearest of the other, among those of one size."""
        ours = {n: v for n in self._a.producers if n not in self._found.taken and (v := self._a.value(n)) is not None}
        theirs = {n: v for n in self._b.producers if n not in self._found.pairs and (v := self._b.value(n)) is not None}
        makers = _makers(self._a), _makers(self._b)
        known = [(here, there) for there, (here, _) in self._found.pairs.items()]
        for here, there in nearest_pairs(ours, theirs, self._places(known), makers):
            self._pair(there, here, "fingerprint")

    def _uncross(self) -> None:
        """Take apart what numbers alone have paired against the order in which others are made of each other.

        A value that a small addend hardly moves is near to several: no value of A that is made of a partner of another
        can be the partner of what that other is made of. The pairs that contradict most others go first.
        """
        pairs = [(b, a, way) for b, (a, way) in self._found.pairs.items() if b in self._b.producers]
        above, below = _order(self._a, [a for _, a, _ in pairs])
        before, after = _order(self._b, [b for b, _, _ in pairs])
        crossed: dict[int, int] = {
            n: found
            for n in range(len(pairs))
            if (found := above[n] & after[n] | below[n] & before[n]) and pairs[n][2] == "fingerprint"
        }
        while crossed:
            worst = max(crossed, key=lambda n: crossed[n].bit_count())
            self._found.remove(pairs[worst][0])
            del crossed[worst]
            crossed = {n: left for n, found in crossed.items() if (left := found & ~(1 << worst))}

    def _places(self, known: Sequence[tuple[str, str]]) -> tuple[dict[str, int], dict[str, int]]:
        """Of each value of both sides how many aligned ones lie before it."""
        return (
            _ranks(self._a, {here for here, _ in known}),
            _ranks(self._b, {there for _, there in known}),
        )

    def _pair(self, there: str, here: str, way: Way, *, exact_shape: bool = True, several: bool = False) -> bool:
        value, ours = self._b.value(there), self._a.value(here)
        if value is None or ours is None or is_floating(value) != is_floating(ours):
            return False
        if value.shape != ours.shape and (exact_shape or value.size != ours.size):
            return False
        return self._found.add(there, here, way, several=several)


def _order(run: SideRun, names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Of each of some values those that it is made of, and those that are made of it, as bits."""
    place = {name: number for number, name in enumerate(names)}
    found = [0] * len(names), [0] * len(names)
    reached: dict[str, int] = {}
    for operation in run.side.operations:
        made_of = 0
        for name in operation.inputs:
            made_of |= reached.get(name, 0)
        for name in operation.outputs:
            if (number := place.get(name)) is not None:
                found[0][number] = made_of
            reached[name] = made_of if number is None else made_of | 1 << number
    reached.clear()
    for operation in reversed(run.side.operations):
        made = 0
        for name in operation.outputs:
            made |= reached.get(name, 0)
            if (number := place.get(name)) is not None:
                found[1][number] = reached.get(name, 0)
                made |= 1 << number
        for name in operation.inputs:
            reached[name] = reached.get(name, 0) | made
    return found


def _makers(run: SideRun) -> dict[str, str]:
    """Of each value the word of the operator that makes it."""
    return {name: spelled(operation.op) for name, operation in run.producers.items()}


def _nodes(run: SideRun) -> dict[str, str]:
    """Of each node of the exported program the last value that a side makes of it."""
    found: dict[str, str] = {}
    for operation in run.side.operations:
        if operation.node is not None and len(operation.outputs) == 1:
            found[operation.node] = operation.outputs[0]
    return found


def _by_place(run: SideRun) -> dict[tuple[str, str], list[Operation]]:
    found: dict[tuple[str, str], list[Operation]] = {}
    for operation in run.side.operations:
        if operation.module is not None and len(operation.outputs) == 1:
            found.setdefault((operation.module, spelled(operation.op)), []).append(operation)
    return found


def _identity(constant: Array) -> tuple[str, tuple[int, ...], int]:
    return constant.dtype.name, constant.shape, hash(np.ascontiguousarray(constant).tobytes())


def _ranks(run: SideRun, aligned: set[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    count = 0
    for name in run.producers:
        found[name] = count
        count += name in aligned
    return found


def unaligned(run: SideRun, names: Iterable[str]) -> Iterator[str]:
    """The values of a side that are not among some, in order."""
    known = set(names)
    return (name for name in run.producers if name not in known)
