"""What is known of the values of the graph and of the bodies that run in it, each scope with its own names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from whynan.capture.onnx.counts import bad_mask, is_array, is_floating
from whynan.capture.onnx.execution import is_batched
from whynan.capture.onnx.provenance.labels import Mark, flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.provenance.labels import Marks, Plane

SMALL: Final = 1 << 16
"""Bytes of a value that is remembered."""
BUDGET: Final = 64 << 20
"""Bytes of all values that are; the oldest leave when they are used up."""
KEPT: Final = 2
"""Iterations of one body whose values stay known when they are over: the causes of births reach so far back."""


class ValueWriter(NamedTuple):
    """A node that wrote a value, and what ran before it."""

    node: Node
    ordinal: int


@dataclass(slots=True)
class Iteration:
    """What an iteration of a body has left: its outputs in order, with their marks."""

    names: tuple[str, ...]
    marks: dict[str, Marks]


@dataclass(slots=True)
class Scope:
    """The names of one graph, or of one iteration of a body."""

    marks: dict[str, Marks] = field(default_factory=lambda: {})
    values: dict[str, Tensor] = field(default_factory=lambda: {})
    writers: dict[str, ValueWriter] = field(default_factory=lambda: {})
    kinds: dict[str, str] = field(default_factory=lambda: {})
    """Of what the graph begins with: ``input`` or ``initializer``."""
    carried: dict[str, str] = field(default_factory=lambda: {})
    """The inputs of a body, and the value around it that each is."""
    finished: list[Iteration] = field(default_factory=lambda: [])
    """The iterations of the bodies of the node that runs here now."""
    outer: Scope | None = None
    """The scope around a body."""
    before: Scope | None = None
    """The iteration before this one."""
    over: list[Scope] = field(default_factory=lambda: [])
    """The last iterations of the node that runs here now, whose values are known still."""
    inside: dict[str, tuple[Scope, str]] = field(default_factory=lambda: {})
    """Of what nodes with bodies gave: the iteration that it comes from, and what it is called there."""


class Scopes:
    """The main graph, and in it the iterations of bodies that run now, innermost last."""

    def __init__(self) -> None:
        self.stack = [Scope()]
        self._bytes = 0
        self._order: dict[tuple[int, str], Scope] = {}

    @property
    def here(self) -> Scope:
        """The innermost scope."""
        return self.stack[-1]

    @property
    def main(self) -> Scope:
        """The scope of the graph itself."""
        return self.stack[0]

    @property
    def marked(self) -> bool:
        """Whether a value is marked at all."""
        return any(scope.marks for scope in self.stack)

    def scope_of(self, name: str) -> Scope | None:
        """The innermost scope that has a value of this name."""
        for scope in reversed(self.stack):
            if name in scope.writers or name in scope.carried or name in scope.kinds or name in scope.marks:
                return scope
        return None

    def mark_of(self, name: str) -> Marks:
        """What is known of a value that is read here."""
        scope = self.scope_of(name) if name else None
        return None if scope is None else scope.marks.get(name)

    def mark(self, name: str, mark: Marks) -> None:
        """Have a value of the innermost scope be marked."""
        if any(m.plane is not None or m.taint is not None for m in flat(mark)):
            self.here.marks[name] = mark
        else:
            self.here.marks.pop(name, None)

    def remember(self, scope: Scope, name: str, value: Value) -> None:
        """Keep a copy of a value, where it is small."""
        if not is_array(value) or isinstance(value, list):
            return
        size = int(cast("Tensor", value).nbytes)
        if size > SMALL:
            return
        self._bytes += size
        scope.values[name] = np.array(value, copy=True)
        self._order[id(scope), name] = scope
        while self._bytes > BUDGET and self._order:
            key = next(iter(self._order))
            held = self._order.pop(key).values.pop(key[1], None)
            self._bytes -= 0 if held is None else held.nbytes

    def value(self, name: str) -> Tensor | None:
        """The copy of a value that is read here, where one is kept."""
        for scope in reversed(self.stack):
            if name in scope.values:
                return scope.values[name]
            if name in scope.writers or name in scope.carried:
                return None
        return None

    # -- bodies --------------------------------------------------------------------------------------------------

    def enter(self, names: Sequence[str], values: Sequence[Value], carried: Sequence[str]) -> None:
        """An iteration of a body begins: its inputs are marked as the values around it that they are."""
        around = self.here
        before = around.finished[-1] if around.finished else None
        made = Scope(outer=around, before=around.over[-1] if around.over else None)
        for i, (name, value) in enumerate(zip(names, values, strict=True)):
            outer = carried[i] if i < len(carried) else ""
            made.carried[name] = outer
            found = self._arriving(value, i, outer, before, len(around.finished))
            if any(m.plane is not None or m.taint is not None for m in flat(found)):
                made.marks[name] = found
        self.stack.append(made)
        for name, value in zip(names, values, strict=True):
            self.remember(made, name, value)

    def _arriving(self, value: Value, position: int, outer: str, before: Iteration | None, number: int) -> Marks:
        """The mark of a body's input: of the last iteration's output that it is, or of a value around the body."""
        candidates: list[Marks] = []
        if before is not None:
            if outer in before.marks:
                return before.marks[outer]
            # what a Loop gives back stands one place before what it takes; with Scan both have the same place
            places = [before.names[p] for p in (position - 1, position) if 0 <= p < len(before.names)]
            candidates += [before.marks.get(name) for name in places]
        around = self.mark_of(outer)
        first = [around] if before is None else []
        if isinstance(value, list) or not is_floating(value):
            # of what cannot be bad there is nothing to tell one from another by
            return (first or [c for c in candidates if c is not None] or [around])[0] if outer else None
        tensor: Any = np.asarray(value)
        bad = bad_mask(tensor)
        # what it is said to be comes before what stands at its place
        for mark in (around, *candidates):
            if isinstance(mark, Mark) and (found := _fitting(mark, bad, number)) is not None:
                return found
        return None

    def leave(self, names: Sequence[str]) -> None:
        """An iteration is over: what it gives is marked for the node that holds the body."""
        marks = {name: self.mark_of(name) for name in names}
        ended = self.stack.pop()
        self.here.finished.append(Iteration(tuple(names), marks))
        self.here.over.append(ended)
        if len(self.here.over) > KEPT:
            self._forget(self.here.over.pop(0))
            self.here.over[0].before = None

    def finish_bodies(self, node: Node) -> None:
        """A node with bodies has run: what it gave is known to come from its last iteration."""
        here = self.here
        if here.finished and here.over:
            names = here.finished[-1].names
            # a Loop's body gives first whether it goes on
            shift = 1 if node.op == "Loop" else 0
            for position, name in enumerate(node.outputs):
                if name and position + shift < len(names):
                    here.inside[name] = here.over[-1], names[position + shift]
        here.finished.clear()
        here.over = []

    def _forget(self, scope: Scope) -> None:
        for name in scope.values:
            self._order.pop((id(scope), name), None)
            self._bytes -= scope.values[name].nbytes
        scope.values.clear()
        for inner, _ in scope.inside.values():
            within: Scope | None = inner
            while within is not None:
                self._forget(within)
                within = within.before
        scope.inside.clear()


def _fitting(mark: Mark, bad: Any, number: int) -> Mark | None:
    """A mark of a value, or of the slice of it that an iteration has taken; None where neither is bad just here."""
    plane = mark.plane
    if plane is None:
        return mark if not bad.any() and mark.taint is not None and mark.taint.shape == bad.shape else None
    if plane.shape == bad.shape:
        return mark if bool(((plane != 0) == bad).all()) else None
    if plane.ndim != bad.ndim + 1:
        return None
    for axis in range(plane.ndim):
        for place in (number, plane.shape[axis] - 1 - number):
            if 0 <= place < plane.shape[axis]:
                part = np.asarray(plane.take(place, axis), dtype=np.int32)
                if part.shape == bad.shape and bool(((part != 0) == bad).all()):
                    return Mark(part)
    return None


def stack_marks(iterations: Sequence[Iteration], position: int, shape: tuple[int, ...]) -> Mark | None:
    """The marks of an output of a body, over all iterations, as one value; None where they make no such shape."""
    parts: list[Plane] = []
    found = [_part(each, position) for each in iterations]
    inner = next((m.plane.shape for m in found if m is not None and m.plane is not None), None)
    if inner is None or len(shape) != len(inner) + 1:
        return None
    for mark in found:
        parts.append(np.zeros(inner, np.int32) if mark is None or mark.plane is None else mark.plane)
    if shape[0] == len(parts) and inner and shape[2:] == inner[1:]:
        # of the sequences of a batch, those that are shorter are filled up
        inner = shape[1:]
        parts = [_filled(part, inner) for part in parts]
    if any(part.shape != inner for part in parts):
        return None
    for axis in range(len(shape)):
        if shape[axis] == len(parts) and (*shape[:axis], *shape[axis + 1 :]) == inner:
            return Mark(np.stack(parts, axis).astype(np.int32, copy=False))
    return None


def is_joined(node: Node, position: int, outputs: int) -> bool:
    """Whether an output of Loop or Scan is made of all iterations: those after the states; with a batch each."""
    if is_batched(node):
        return position < outputs
    states = len(node.inputs) - 2 if node.op == "Loop" else len(node.inputs) - _scanned(node)
    return states <= position < outputs


def _scanned(node: Node) -> int:
    return next((int(a.i) for a in node.proto.attribute if a.name == "num_scan_inputs"), 0)


def _filled(plane: Plane, shape: tuple[int, ...]) -> Plane:
    """A plane with zeros behind it, up to the size of the first axis."""
    if plane.shape[1:] != shape[1:] or plane.shape[0] >= shape[0]:
        return plane
    behind = [(0, shape[0] - plane.shape[0]), *((0, 0) for _ in shape[1:])]
    return np.pad(plane, behind)


def _part(iteration: Iteration, position: int) -> Mark | None:
    if position >= len(iteration.names):
        return None
    mark = iteration.marks.get(iteration.names[position])
    return mark if isinstance(mark, Mark) else None
