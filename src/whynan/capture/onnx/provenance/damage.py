"""Births that end in finite numbers: whether what was computed from them is wrong, and where it goes.

From a number that overflowed to the first finite value, nodes are evaluated again in float64 (the shadow). A finite
value that differs from its shadow, or that should be NaN, is tainted, and so is an index, a boolean or an integer that
float64 decides otherwise, or that is made of a NaN; taint follows every value that depends on it until it leaves the
graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.onnx.counts import at, bad_mask, dtype_name, floating, is_array, mapped, nan_mask, tensors
from whynan.capture.onnx.provenance.dependence import RISING, Dependence, Source, left_out
from whynan.capture.onnx.provenance.interventions import LARGEST, Experiments
from whynan.capture.onnx.provenance.labels import Mark, compact, part_of
from whynan.errors import UsageError
from whynan.floats import format_of
from whynan.ops.onnx import CONTROL, PLACING, PREDICATES, RANDOM, SWALLOWS, VALUE_FREE
from whynan.records import Note, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.counts import Key, Mask
    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.provenance.births import Roots
    from whynan.capture.onnx.provenance.labels import Labels, Marks, Plane

RELATIVE: Final = 1e-3
EVALUATIONS: Final = 2000
TOO_MANY: Final = Note.of("damage_not_followed", of="nodes")
_COMPARES: Final = frozenset(("Equal",))


class Damage:
    """Follows finite values computed from a birth."""

    def __init__(self, roots: Roots, experiments: Experiments, notes: dict[Note, None]) -> None:
        self.roots = roots
        self.labels: Labels = roots.labels
        self.experiments = experiments
        self.dependence = Dependence(self.labels, experiments)
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
            plane = self.dependence.on(node, inputs, sources, tensor, position, (0, 1))
            if plane is None:
                continue
            if not any(s.tainted for s in sources.values()):
                lost = self._from_nan(node, inputs, sources, tensor, position)
                rest = np.where(lost != 0, np.int32(0), plane)
                judge = self._wrong if floating(tensor) else self._decided
                plane = self.labels.union(lost, judge(node, inputs, marks, tensor, position, rest, ordinal))
                if not floating(tensor):
                    self._made(node, tensor, lost, ordinal, "NaN")
            if plane.any():
                found[position] = Mark(taint=compact(plane))
        kind = "place_of_nan" if node.op in PLACING else "drops_nan"
        self._tell(dropped, node, ordinal, Note.of(kind, operator=node.op))
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
                    found[key] = Source(tensor, self.labels.select(plane, born), tainted, mark.shadow)
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
        self._turned(node, output, exact, plane, ordinal)
        return plane

    def _decided(
        self,
        node: Node,
        inputs: Sequence[Value],
        marks: Sequence[Marks],
        output: Tensor,
        position: int,
        plane: Plane,
        ordinal: int,
    ) -> Plane:
        """Of the indices, booleans or integers that depend on a birth those that float64 decides otherwise."""
        empty = np.zeros_like(plane)
        if not plane.any() or output.size > LARGEST:
            return empty
        exact = self._exact(node, inputs, marks, position)
        if exact is None or exact.shape != output.shape or floating(exact):
            # a boolean is what it is whatever the size of an infinity
            plane = empty if output.dtype.kind == "b" else plane
            self._made(node, output, plane, ordinal, "Inf")
            return plane
        wrong = np.where((exact != output) & self._comparable(node, inputs, output, position), plane, np.int32(0))
        self._turned(node, output, exact, wrong, ordinal)
        return wrong

    def _comparable(self, node: Node, inputs: Sequence[Value], output: Tensor, position: int) -> Mask | bool:
        """Where the reference of a node decides as the engine does, on the very operands: equals may have no order."""
        if any(floating(v) and bool(nan_mask(np.asarray(v)).any()) for v in inputs):
            # what each makes of a NaN is its own
            return True
        plain = self._exact(node, inputs, (), position)
        return plain is None or plain.shape != output.shape or np.asarray(plain == output)

    # -- what is made of NaN -------------------------------------------------------------------------------------

    def _from_nan(
        self, node: Node, inputs: Sequence[Value], sources: dict[Key, Source], output: Tensor, position: int
    ) -> Plane:
        """The elements that a NaN, which float64 has too, was left out of or made into."""
        empty = np.zeros(output.shape, np.int32)
        left = left_out(sources)
        if not left or (floating(output) and node.op not in SWALLOWS and node.op not in PLACING):
            return empty
        # whatever the NaN had been: a choice without it is none
        most = _most(next(iter(left.values())).tensor)
        lost = self.dependence.on(node, inputs, left, output, position, (0, 1, most, -most, RISING))
        return empty if lost is None else lost

    def _dropped(self, node: Node, sources: dict[Key, Source], output: Tensor) -> frozenset[int]:
        """The births whose NaN a node has read and left out of what it chose."""
        if not (node.op in SWALLOWS or node.op in PLACING) or not output.size or not floating(output):
            return frozenset()
        found: frozenset[int] = frozenset()
        for source in left_out(sources).values():
            found |= self.labels.labels_in(source.plane)
        return found

    # -- the path ------------------------------------------------------------------------------------------------

    def _turned(self, node: Node, output: Tensor, exact: Tensor, plane: Plane, ordinal: int) -> None:
        """Note where a finite value is another than in float64."""
        if plane.any():
            index = tuple(int(i) for i in np.argwhere(plane != 0)[0])
            found, meant = shown(at(output, index)), shown(at(exact, index))
            said = Note.of("float64_differs", operator=node.op, result=found, meant=meant)
            self._tell(self.labels.labels_in(plane), node, ordinal, said)

    def _made(self, node: Node, output: Tensor, plane: Plane, ordinal: int, of: str) -> None:
        """Note where a bad number became an index, a boolean or an integer."""
        if plane.any():
            found = shown(at(output, tuple(int(i) for i in np.argwhere(plane != 0)[0])))
            said = Note.of("made_of_bad", operator=node.op, result=found, bad=of)
            self._tell(self.labels.labels_in(plane), node, ordinal, said)

    def _tell(self, labels: frozenset[int], node: Node, ordinal: int, said: Note) -> None:
        """Note a node on the path of births that have no step yet that says this."""

        fields = ("operator",) if said.kind in ("drops_nan", "place_of_nan") else ("bad",)

        def known(label: int) -> bool:
            steps: list[Any] = self.labels.birth(label).steps
            return any(link.typed_summary.is_like(said, *fields) for link in steps)

        told = frozenset(label for label in labels if not known(label))
        if told:
            self.roots.step(told, node, ordinal, said, always=True)


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
