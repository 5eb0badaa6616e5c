"""Births that end in finite numbers: whether what was computed from them is wrong, and where it goes.

From a number that overflowed to the first finite value, nodes are evaluated again in float64 (the shadow). A finite
value that differs from its shadow, or that should be NaN, is tainted, and so is an index, a boolean or an integer made
of a NaN; taint follows every value that depends on it until it leaves the graph.
"""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.onnx.attribution import selection, spread
from whynan.capture.onnx.experiments import LARGEST, Experiments, Refused
from whynan.capture.onnx.labels import Mark, compact, part_of
from whynan.capture.onnx.masks import (
    Mask,
    bad_mask,
    constant_like,
    dtype_name,
    floating,
    is_array,
    mapped,
    nan_mask,
    tensors,
)
from whynan.capture.onnx.sentences import text
from whynan.errors import UsageError
from whynan.floats import format_of
from whynan.ops.onnx import CONTROL, POINTWISE, PREDICATES, RANDOM, RESHAPES, SWALLOWS, VALUE_FREE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.births import Roots
    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.labels import Labels, Marks, Plane
    from whynan.capture.onnx.masks import Key

RELATIVE: Final = 1e-3
EVALUATIONS: Final = 2000
TURNED: Final = "the value in float64"
TOO_MANY: Final = "damage of absorbed births was not followed any further: too many nodes"
_COMPARES: Final = frozenset(("Equal",))


@dataclass(frozen=True, slots=True)
class Source:
    """An operand that holds births or taint: its tensor, the labels, and whether they are taint."""

    tensor: Tensor
    plane: Plane
    tainted: bool


class Damage:
    """Follows finite values computed from a birth."""

    def __init__(self, roots: Roots, experiments: Experiments, notes: dict[str, None]) -> None:
        self.roots = roots
        self.labels: Labels = roots.labels
        self.experiments = experiments
        self._notes = notes
        self._left = EVALUATIONS

    def shadow(self, node: Node, inputs: Sequence[Value], marks: Sequence[Marks], key: Key, mark: Mark) -> None:
        """A node carried a birth on, or bore it: what its bad elements are in float64, where that may be finite."""
        assert mark.plane is not None
        position, *within = key
        if within or not self._may_be_finite(mark.plane, marks) or mark.plane.size > LARGEST:
            return
        exact = self._exact(node, inputs, marks, position)
        if exact is not None and exact.shape == mark.plane.shape and exact.dtype == np.float64:
            mark.shadow = exact

    def absorbed(
        self,
        node: Node,
        inputs: Sequence[Value],
        marks: Sequence[Marks],
        outputs: Sequence[Value],
        bad: Sequence[bool],
        ordinal: int,
    ) -> dict[int, Mark]:
        """A node read a birth or a tainted value, and wrote something finite: the marks of outputs that are tainted."""
        if node.op in VALUE_FREE or node.op in RANDOM or node.op in CONTROL or self._asks(node, inputs):
            return {}
        sources = self._sources(inputs, marks)
        if not sources:
            return {}
        found: dict[int, Mark] = {}
        dropped: frozenset[int] = frozenset()
        for position, output in enumerate(outputs):
            if bad[position] or not is_array(output) or isinstance(output, list) or not node.outputs[position]:
                continue
            tensor = np.asarray(output)
            dropped |= self._dropped(node, sources, tensor)
            plane = self._depends(node, inputs, sources, tensor, position, (0, 1))
            if plane is None:
                continue
            if node.op in SWALLOWS and floating(tensor) and (left := self._left_out(sources)):
                # whatever the NaN had been: a choice without it is none
                extremes = (0, 1, _most(tensor), -_most(tensor))
                lost = self._depends(node, inputs, left, tensor, position, extremes)
                if lost is not None and lost.any():
                    found[position] = Mark(taint=compact(lost))
                    continue
            tainted = any(s.tainted for s in sources.values())
            if floating(tensor) and not tainted:
                plane = self._wrong(node, inputs, marks, tensor, position, plane, ordinal)
            elif not floating(tensor):
                plane = self._decided(node, inputs, marks, tensor, position, plane)
            if plane.any():
                found[position] = Mark(taint=compact(plane))
        told = frozenset(label for label in dropped if not self._told(label, node))
        if told:
            self.roots.step(told, node, ordinal, f"{node.op} drops NaN")
        return found

    # -- what is read --------------------------------------------------------------------------------------------

    def _sources(self, inputs: Sequence[Value], marks: Sequence[Marks]) -> dict[Key, Source]:
        found: dict[Key, Source] = {}
        for i, value in enumerate(inputs):
            for key, tensor in tensors(value, (i,)):
                mark = part_of(marks[i], key[1:]) if i < len(marks) else None
                if mark is None:
                    continue
                tainted = mark.taint is not None
                plane = mark.taint if mark.taint is not None else mark.plane
                if plane is None or plane.shape != tensor.shape:
                    continue
                born = [s for s in self.labels.present(plane) if not self.labels.is_literal(s)]
                if born:
                    found[key] = Source(tensor, self.labels.select(plane, born), tainted)
        return found

    def _asks(self, node: Node, inputs: Sequence[Value]) -> bool:
        """Whether a node only asks if its operand is finite, whichever way that is written."""
        if node.op in PREDICATES:
            return True
        if node.op not in _COMPARES or len(inputs) != 2:
            return False
        if node.inputs[0] == node.inputs[1]:
            return True
        return any(
            floating(v) and not isinstance(v, list) and v is not None and v.size == 1 and bool(np.isinf(v).all())
            for v in inputs
        )

    def _may_be_finite(self, plane: Plane, marks: Sequence[Marks]) -> bool:
        """Whether a bad number was one of float32's range only, so that it is another in float64."""
        if any(isinstance(m, Mark) and m.shadow is not None for m in marks):
            return True
        return any(self.labels.birth(label).kind == "overflow" for label in self.labels.labels_in(plane))

    # -- what depends --------------------------------------------------------------------------------------------

    def _depends(
        self,
        node: Node,
        inputs: Sequence[Value],
        sources: dict[Key, Source],
        output: Tensor,
        position: int,
        others: tuple[float, ...],
    ) -> Plane | None:
        """Which output elements depend on the sources: by position, or by changing the sources to some others."""
        if node.op in POINTWISE:
            return self._by_place(node, inputs, sources, output)
        only = sources.get((0,))
        if node.op in RESHAPES and only is not None and only.plane.size == output.size:
            return only.plane.reshape(output.shape)
        everything = self.labels.intern(
            self.labels.of(s for source in sources.values() for s in self.labels.present(source.plane))
        )
        differs: Mask | None = None
        # an index may happen to be the value that it is changed to: several are tried
        for other in others:

            def changed(key: Key, tensor: Tensor, other: float = other) -> Tensor:
                source = sources.get(key)
                if source is None:
                    return tensor
                if tensor.dtype.kind == "b":
                    return np.where(source.plane != 0, ~tensor, tensor)
                return np.where(source.plane != 0, constant_like(tensor, other), tensor)

            try:
                again = self.experiments.run(node, inputs, changed)[position]
            except (Refused, IndexError):  # nothing is known
                return None
            if not is_array(again) or isinstance(again, list) or again is None:
                return None
            if again.shape != output.shape:
                return np.full(output.shape, everything, dtype=np.int32)
            here: Mask = np.asarray(again != output)
            differs = here if differs is None else differs | here
        assert differs is not None
        return np.where(differs, np.int32(everything), np.int32(0))

    def _by_place(
        self, node: Node, inputs: Sequence[Value], sources: dict[Key, Source], output: Tensor
    ) -> Plane | None:
        chosen = selection(node, inputs)
        plane = np.zeros(output.shape, dtype=np.int32)
        for key, source in sources.items():
            own = spread(source.plane, output.shape)
            if own is None:
                return None
            if key[0] in chosen:
                own = np.where(chosen[key[0]], own, np.int32(0))
            plane = self.labels.union(plane, own)
        return plane

    # -- what is wrong -------------------------------------------------------------------------------------------

    def _exact(self, node: Node, inputs: Sequence[Value], marks: Sequence[Marks], position: int) -> Tensor | None:
        """One output of a node in float64, its operands taken from their shadows where they have one."""
        if self._left <= 0:
            self._notes[TOO_MANY] = None
            return None
        self._left -= 1

        def widened(key: Key, tensor: Tensor) -> Tensor:
            if not floating(tensor) or tensor.dtype.kind == "c":
                return tensor
            wide = tensor.astype(np.float64)
            mark = part_of(marks[key[0]], key[1:]) if key[0] < len(marks) else None
            if mark is None or mark.shadow is None or mark.shadow.shape != wide.shape:
                return wide
            return np.where(bad_mask(tensor) & ~np.isnan(mark.shadow), mark.shadow, wide)

        wide = [mapped(value, (i,), widened) for i, value in enumerate(inputs)]
        found = self.experiments.exact(node, wide, outputs=len(node.outputs))
        return found[position] if found is not None and position < len(found) else None

    def _wrong(
        self,
        node: Node,
        inputs: Sequence[Value],
        marks: Sequence[Marks],
        output: Tensor,
        position: int,
        plane: Plane,
        ordinal: int,
    ) -> Plane:
        """Of the finite elements that depend on a birth those that differ from their shadow by more than rounding."""
        empty = np.zeros_like(plane)
        if not plane.any() or output.size > LARGEST or output.dtype.kind == "c":
            return empty
        exact = self._exact(node, inputs, marks, position)
        if exact is None or exact.shape != output.shape or exact.dtype != np.float64:
            return empty
        with np.errstate(all="ignore"):
            difference = np.abs(exact - output.astype(np.float64))
            wrong = (difference > RELATIVE * np.abs(exact)) & (difference > _tiny(output)) & np.isfinite(exact)
        # what should be NaN and is a number: a NaN was left out
        wrong |= np.isnan(exact)
        plane = np.where(wrong, plane, np.int32(0))
        if plane.any():
            index = tuple(int(i) for i in np.argwhere(plane != 0)[0])
            found, meant = text(float(output[index])), text(float(exact[index]))
            told = frozenset(label for label in self.labels.labels_in(plane) if not self._told(label, node, TURNED))
            self.roots.step(told, node, ordinal, f"{node.op} gives {found}, where {meant} is {TURNED}")
        return plane

    def _decided(
        self,
        node: Node,
        inputs: Sequence[Value],
        marks: Sequence[Marks],
        output: Tensor,
        position: int,
        plane: Plane,
    ) -> Plane:
        """An index, boolean or integer: made of a NaN it is tainted, made of an Inf where float64 decides otherwise."""
        if output.dtype.kind != "b" or not plane.any():
            return plane
        differs: Mask = np.zeros(output.shape, dtype=np.bool_)
        exact = self._exact(node, inputs, marks, position)
        if exact is not None and exact.shape == output.shape and exact.dtype.kind == "b":
            differs |= exact != output
        for i, value in enumerate(inputs):
            mark = part_of(marks[i], ()) if i < len(marks) else None
            if mark is not None and mark.taint is not None:
                return plane
            if floating(value) and not isinstance(value, list) and value is not None:
                nan = spread(nan_mask(np.asarray(value)), output.shape)
                if nan is not None:
                    differs |= nan != 0
        return np.where(differs, plane, np.int32(0))

    def _left_out(self, sources: dict[Key, Source]) -> dict[Key, Source]:
        """Of the sources those elements that are NaN and were born so."""
        found: dict[Key, Source] = {}
        for key, source in sources.items():
            if not source.tainted and floating(source.tensor):
                plane = np.where(nan_mask(source.tensor), source.plane, np.int32(0))
                if plane.any():
                    found[key] = Source(source.tensor, plane, False)
        return found

    def _dropped(self, node: Node, sources: dict[Key, Source], output: Tensor) -> frozenset[int]:
        """The births whose NaN a node has read and left out of what it chose."""
        if node.op not in SWALLOWS or not output.size:
            return frozenset()
        found: frozenset[int] = frozenset()
        for source in self._left_out(sources).values():
            found |= self.labels.labels_in(source.plane)
        return found

    def _told(self, label: int, node: Node, ending: str | None = None) -> bool:
        steps: list[Any] = self.labels.birth(label).steps
        if ending is not None:
            return any(link.summary.endswith(ending) for link in steps)
        return any(link.summary == f"{node.op} drops NaN" for link in steps)


def _most(output: Tensor) -> float:
    """The greatest number of a dtype."""
    try:
        return format_of(dtype_name(output.dtype)).max
    except UsageError:
        return 1.0


def _tiny(output: Tensor) -> float:
    try:
        return format_of(dtype_name(output.dtype)).tiny
    except UsageError:
        return 0.0
