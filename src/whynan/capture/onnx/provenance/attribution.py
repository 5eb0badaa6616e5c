"""One executed node as the attribution of bad elements asks it, and the usual case of a healthy model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.capture.onnx.counts import Mask, bad_mask, dtype_name, is_floating, map_tensors, tensors
from whynan.capture.onnx.execution import attribute as attribute_of
from whynan.capture.onnx.provenance import planes
from whynan.capture.onnx.provenance.labels import part_of
from whynan.capture.provenance import attribution
from whynan.capture.provenance.attribution import Verdict
from whynan.capture.provenance.dependence import Refused
from whynan.errors import UsageError
from whynan.floats import format_of
from whynan.ops.table import ONNX
from whynan.records import ChainLink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whynan.capture.onnx.counts import Key
    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.graph.sites import Places
    from whynan.capture.onnx.provenance.interventions import Experiments
    from whynan.capture.onnx.provenance.labels import Labels, Mark, Marks, Plane
    from whynan.capture.provenance.arrays import Arrays, Carrier
    from whynan.records import Note

_KEEPS_SIGNS: Final = frozenset("Add Sum Cast CastLike".split())


@dataclass(slots=True)
class Question:
    """One executed node to be explained."""

    node: Node
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    marks: Sequence[Marks]
    carriers: dict[Key, Carrier]
    labels: Labels
    experiments: Experiments
    places: Places
    ordinal: int
    answers: dict[str, list[Value]] = field(default_factory=lambda: {})

    arrays: Arrays = planes
    gone: frozenset[Key] = frozenset()
    scalar_literal: int = 0
    is_literal_nan: bool = False
    is_repeatable: bool = True
    is_deterministic: bool = True
    may_copy: bool = True

    @property
    def name(self) -> str:
        """The operator."""
        return self.node.op

    @property
    def swallows(self) -> bool:
        """Whether the operator may leave a NaN out of a floating-point result."""
        return self.node.op in ONNX.having("swallows", "placing")

    @property
    def reshapes(self) -> bool:
        """Whether the result has the elements of the one operand in their order."""
        return self.node.op in ONNX.having("reshape")

    def pointwise_operands(self, key: Key) -> list[Key] | None:
        """The operands that meet element by element in one result; None where the operator is not pointwise."""
        if (
            self.node.op not in ONNX.having("pointwise")
            or len(key) != 1
            or any(len(each) != 1 for each in self.carriers)
        ):
            return None
        return [(i,) for i in range(len(self.inputs))]

    def selection_mask(self, key: Key) -> Mask | None:
        """Where this operand of a ``Where`` was chosen."""
        if self.node.op != "Where" or len(self.inputs) != 3 or key not in ((1,), (2,)):
            return None
        condition = np.asarray(self.inputs[0], dtype=np.bool_)
        return condition if key == (1,) else ~condition

    def keeps_signs(self, tensor: Tensor) -> bool:
        """Whether an infinity of an operand passes with its sign, so that one of the other sign is not its own."""
        return self.node.op in _KEEPS_SIGNS and tensor.dtype.kind != "c"

    def run(self, replace: Callable[[Key, Tensor], Tensor]) -> list[Value]:
        """Run the node again on replaced operands; raises ``Refused`` where that cannot be had."""
        return self.experiments.run(self.node, self.inputs, replace)

    def result(self, results: Sequence[Value], key: Key) -> Tensor | None:
        """One tensor of what a run gave."""
        return dict(tensors(results[key[0]], key[:1])).get(key) if key[0] < len(results) else None

    def exact(self, key: Key, *, known: bool = True) -> Tensor | None:
        """One output by ONNX's reference in float64, the operands taken from their shadows (`known`).

        Without them None where an operand is NaN, of which the reference and the engine may make what they like.
        """
        if not known and any(is_floating(v) and planes.nan_mask(np.asarray(v)).any() for v in self.inputs):
            return None

        def widened(at: Key, tensor: Tensor) -> Tensor:
            return wide(tensor, part_of(self.marks[at[0]], at[1:]) if known and at[0] < len(self.marks) else None)

        given = [map_tensors(value, (i,), widened) for i, value in enumerate(self.inputs)]
        found = self.experiments.exact(self.node, given, outputs=len(self.node.outputs))
        return found[key[0]] if found is not None and key[0] < len(found) else None

    def chain_link(self, said: Note) -> ChainLink:
        """A step in the chain of a birth that this node carries on."""
        event = self.places.event(self.ordinal, self.node, next((o for o in self.node.outputs if o), ""))
        return ChainLink(
            role="step", op=event.op, phase="inference", site=event.site, node=event.node, typed_summary=said
        )

    def moved_plane(self, kind: str, key: Key) -> Plane | None:
        """The plane of one kind of labels where the node has moved it; None where that cannot be had."""
        output = self.result(self.outputs, key)
        if output is None or not is_data_movement(self.node):
            return None
        found: dict[Key, Plane] = {
            k: plane for k, c in self.carriers.items() if (plane := getattr(c, kind)) is not None
        }
        only = found.get((0,))
        if self.node.op in ONNX.having("reshape"):
            return only.reshape(output.shape) if only is not None and only.size == output.size else None
        if self.node.op == "Transpose" and only is not None:
            moved = np.transpose(only, attribute_of(self.node, "perm") or None)
            return moved if moved.shape == output.shape else None
        return self._moved_numbers(kind, found, key, output)

    def _moved_numbers(self, kind: str, found: dict[Key, Plane], key: Key, output: Tensor) -> Plane | None:
        """Have the node move the numbers of label sets in place of its operands' elements."""
        sets = sorted({s for plane in found.values() for s in self.labels.present(plane)})
        if len(sets) > _room(output):
            return None
        numbers = np.zeros(max(sets) + 1, dtype=np.int64)
        numbers[sets] = np.arange(1, len(sets) + 1)

        def numbered(at: Key, tensor: Tensor) -> Tensor:
            if not is_floating(tensor):
                return tensor
            plane = found.get(at)
            if plane is None:
                return np.zeros(tensor.shape, dtype=tensor.dtype)
            return numbers[plane].astype(tensor.dtype)

        name = f"moved {kind}"
        try:
            if name not in self.answers:
                self.answers[name] = self.run(numbered)
        except Refused:
            return None
        moved = self.result(self.answers[name], key)
        if moved is None or moved.shape != output.shape or not is_floating(moved):
            return None
        table = np.array([0, *sets], dtype=np.int32)
        places = np.real(moved).astype(np.int64)
        return table[np.where((places >= 0) & (places < len(table)), places, 0)]


def attribute(question: Question, key: Key, output: Tensor) -> Verdict:
    """Explain the bad elements of one tensor that a node has written."""
    bad = bad_mask(output)
    if question.node.op in ONNX.having("value-free"):
        return Verdict(np.zeros(output.shape, dtype=np.int32), bad)
    return _single_mask_copy(question, key, output, bad) or attribution.attribute(question, key, output)


def is_data_movement(node: Node) -> bool:
    """Whether a node gives its operands' elements, moved."""
    if node.op in ONNX.having("reshape"):
        return True
    if node.op in ONNX.having("reducing-write") and attribute_of(node, "reduction", "none") != "none":
        return False
    if node.op == "Pad" and attribute_of(node, "value", 0.0) != 0.0:
        return False
    return node.op in ONNX.having("movement")


def _single_mask_copy(question: Question, key: Key, output: Tensor, bad: Mask) -> Verdict | None:
    """The usual case of a healthy model: infinities that are those of one mask. None for every other."""
    if not question.carriers or question.pointwise_operands(key) is None:
        return None
    literals: set[int] = set()
    for carrier in question.carriers.values():
        if carrier.explains is not None or carrier.literal is None or carrier.literal_nan:
            return None
        literals.update(question.labels.present(carrier.literal))
    if len(literals) != 1 or question.node.op == "Where" or output.dtype.kind == "c" or np.isnan(output).any():
        return None
    covered = planes.empty_mask(output)
    for carrier in question.carriers.values():
        assert carrier.literal is not None
        own = planes.broadcast_plane(carrier.literal != 0, output.shape)
        if own is None:
            return None
        covered |= own & (carrier.tensor == output) if question.node.op in _KEEPS_SIGNS else own
    if (bad & ~covered).any():
        return None
    return Verdict(bad.astype(np.int32) * np.int32(literals.pop()), planes.empty_mask(output))


def _room(output: Tensor) -> int:
    """How many sets can be told apart by the whole numbers of a dtype."""
    try:
        return 1 << (format_of(dtype_name(output.dtype)).fraction_bits + 1)
    except UsageError:
        return 1


def wide(tensor: Tensor, mark: Mark | None) -> Tensor:
    """An operand in float64, its bad elements taken from their shadow where they have one."""
    if not is_floating(tensor) or tensor.dtype.kind == "c":
        return tensor
    found = tensor.astype(np.float64)
    if mark is None or mark.shadow is None or mark.shadow.shape != found.shape:
        return found
    return np.where(planes.bad_mask(tensor) & ~np.isnan(mark.shadow), mark.shadow, found)
