"""For every bad element of a node's output: which label it carries on, or that it was born here.

Three ways, cheapest first: pointwise operators join the labels at the same place; operators that only move elements
are run on the label planes; every other operator is asked by experiment, its bad operand elements replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.capture.onnx.counts import Mask, bad_mask, constant_like, dtype_name, floating, nan_mask, tensors
from whynan.capture.onnx.execution import attribute as attribute_of
from whynan.capture.onnx.provenance.interventions import Experiments
from whynan.capture.provenance.dependence import Refused
from whynan.errors import UsageError
from whynan.floats import format_of
from whynan.ops.onnx import MOVEMENT, POINTWISE, REDUCING_WRITES, RESHAPES, VALUE_FREE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whynan.capture.onnx.counts import Key
    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.provenance.labels import Labels, Plane

MAX_SEPARATE: Final = 8
_KEEPS_SIGNS: Final = frozenset("Add Sum Cast CastLike".split())


@dataclass(slots=True)
class Carrier:
    """The labels of one operand: those that explain a bad result, and literals."""

    value: Tensor
    explains: Plane | None = None
    literal: Plane | None = None
    literal_nan: bool = False

    @property
    def planes(self) -> list[Plane]:
        """Those that there are."""
        return [p for p in (self.explains, self.literal) if p is not None]


@dataclass(slots=True)
class Verdict:
    """One output: the set ids that its bad elements carry on, what was born here, and what the born were made from."""

    carried: Plane
    born: Mask
    causes: frozenset[int] = field(default_factory=lambda: frozenset[int]())


@dataclass(slots=True)
class Question:
    """One executed node to be explained."""

    node: Node
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    carriers: dict[Key, Carrier]
    labels: Labels
    experiments: Experiments
    answers: dict[str, list[Value]] = field(default_factory=lambda: {})
    """Outputs of reruns that were asked for already."""


def attribute(question: Question, key: Key, output: Tensor) -> Verdict:
    """Explain the bad elements of one tensor that a node has written."""
    bad = bad_mask(output)
    if not question.carriers or question.node.op in VALUE_FREE:
        return Verdict(_empty(output), bad)
    op = question.node.op
    if op in POINTWISE and len(key) == 1 and (verdict := _copied(question, output, bad)) is not None:
        return verdict
    if op in POINTWISE and len(key) == 1 and (verdict := _pointwise(question, output, bad)) is not None:
        return verdict
    if moves(question.node) and (verdict := _moved(question, key, output, bad)) is not None:
        return verdict
    return _by_experiment(question, key, output, bad)


def moves(node: Node) -> bool:
    """Whether a node gives its operands' elements, moved."""
    if node.op in RESHAPES:
        return True
    if node.op in REDUCING_WRITES and attribute_of(node, "reduction", "none") != "none":
        return False
    if node.op == "Pad" and attribute_of(node, "value", 0.0) != 0.0:
        return False
    return node.op in MOVEMENT


def selection(node: Node, inputs: Sequence[Value]) -> dict[int, Mask]:
    """For an operator that chooses: where each operand was chosen."""
    if node.op != "Where" or len(inputs) != 3:
        return {}
    condition = np.asarray(inputs[0], dtype=np.bool_)
    return {1: condition, 2: ~condition}


def spread(plane: Plane | Mask, shape: tuple[int, ...]) -> Plane | None:
    """A plane under broadcasting; None where it does not fit."""
    try:
        return np.broadcast_to(plane, shape).astype(np.int32, copy=False)
    except ValueError:
        return None


def _empty(output: Tensor) -> Plane:
    return np.zeros(output.shape, dtype=np.int32)


def _copied(question: Question, output: Tensor, bad: Mask) -> Verdict | None:
    """The usual case of a healthy model: infinities that are those of one mask. None for every other."""
    literals: set[int] = set()
    for key, carrier in question.carriers.items():
        if carrier.explains is not None or carrier.literal is None or carrier.literal_nan or len(key) != 1:
            return None
        literals.update(question.labels.present(carrier.literal))
    if len(literals) != 1 or question.node.op == "Where" or output.dtype.kind == "c" or np.isnan(output).any():
        return None
    covered = np.zeros(output.shape, dtype=np.bool_)
    for carrier in question.carriers.values():
        assert carrier.literal is not None
        own = carrier.literal != 0
        try:
            if question.node.op in _KEEPS_SIGNS:
                own = np.broadcast_to(own, output.shape) & (carrier.value == output)
            covered |= own
        except ValueError:
            return None
    if (bad & ~covered).any():
        return None
    return Verdict(bad.astype(np.int32) * np.int32(literals.pop()), np.zeros(output.shape, dtype=np.bool_))


def _pointwise(question: Question, output: Tensor, bad: Mask) -> Verdict | None:
    chosen = selection(question.node, question.inputs)
    labels = question.labels
    merged: dict[str, Plane | None] = {"explains": None, "literal": None}
    literal_nan = np.zeros(output.shape, dtype=np.bool_)
    decided = _nan_already(question, output)
    for key, carrier in question.carriers.items():
        if len(key) != 1:
            return None
        nan = nan_mask(carrier.value)
        for name in merged:
            own: Plane | None = getattr(carrier, name)
            plane = None if own is None else spread(own, output.shape)
            if own is None:
                continue
            if plane is None:
                return None
            if key[0] in chosen:
                plane = np.where(chosen[key[0]], plane, np.int32(0))
            elif name == "literal" and question.node.op in _KEEPS_SIGNS and output.dtype.kind != "c":
                # an infinity of the other sign is not this one
                plane = np.where(np.asarray(carrier.value == -output) & bad, np.int32(0), plane)
            elif decided is not None:
                plane = np.where(decided & ~nan, np.int32(0), plane)
            before = merged[name]
            merged[name] = plane if before is None else labels.union(before, plane)
            if name == "literal" and carrier.literal_nan:
                literal_nan |= nan & (own != 0)
    return _decide(question, output, bad, merged["explains"], merged["literal"], literal_nan)


def _nan_already(question: Question, output: Tensor) -> Mask | None:
    """Where one of several bad operands is NaN, and so is the result: what the others are makes no difference."""
    if len(question.carriers) < 2:
        return None
    found = np.zeros(output.shape, dtype=np.bool_)
    for carrier in question.carriers.values():
        if carrier.explains is not None:
            plane = spread(nan_mask(carrier.value) & (carrier.explains != 0), output.shape)
            if plane is None:
                return None
            found |= plane != 0
    return found & nan_mask(output)


def _decide(
    question: Question, output: Tensor, bad: Mask, explains: Plane | None, literal: Plane | None, literal_nan: Mask
) -> Verdict:
    carried = _empty(output)
    rest = bad
    born = np.zeros(output.shape, dtype=np.bool_)
    causes: frozenset[int] = frozenset()
    if explains is not None:
        carried = np.where(rest, explains, carried)
        rest = rest & (carried == 0)
    if literal is not None:
        from_literal = rest & (literal != 0)
        made = from_literal & nan_mask(output) & ~literal_nan
        carried = np.where(from_literal & ~made, literal, carried)
        born = born | made
        rest = rest & ~from_literal
        causes = question.labels.labels_in(np.where(made, literal, np.int32(0)))
    return Verdict(carried.astype(np.int32, copy=False), born | rest, causes)


# -- movement --------------------------------------------------------------------------------------------------------


def _moved(question: Question, key: Key, output: Tensor, bad: Mask) -> Verdict | None:
    explains = _moved_planes(question, key, output, "explains")
    literal = _moved_planes(question, key, output, "literal")
    if explains is None or literal is None:
        return None
    # a moved literal is a copy, whatever its value
    return _decide(question, output, bad, explains, literal, np.ones(output.shape, dtype=np.bool_))


def _moved_planes(question: Question, key: Key, output: Tensor, name: str) -> Plane | None:
    """The labels of one kind where the operator has moved them; None where that cannot be had."""
    planes: dict[Key, Plane] = {
        k: plane for k, c in question.carriers.items() if (plane := getattr(c, name)) is not None
    }
    if not planes:
        return _empty(output)
    only = planes.get((0,))
    if question.node.op in RESHAPES:
        return only.reshape(output.shape) if only is not None and only.size == output.size else None
    if question.node.op == "Transpose" and only is not None:
        axes = attribute_of(question.node, "perm")
        moved = np.transpose(only, axes or None)
        return moved if moved.shape == output.shape else None
    sets = sorted({s for plane in planes.values() for s in question.labels.present(plane)})
    if len(sets) > _room(output):
        return None
    numbers = np.zeros(max(sets) + 1, dtype=np.int64)
    numbers[sets] = np.arange(1, len(sets) + 1)

    def numbered(at: Key, tensor: Tensor) -> Tensor:
        if not floating(tensor):
            return tensor
        plane = planes.get(at)
        if plane is None:
            return np.zeros(tensor.shape, dtype=tensor.dtype)
        return numbers[plane].astype(tensor.dtype)

    try:
        found = question.answers.get(name)
        if found is None:
            found = question.answers[name] = question.experiments.run(question.node, question.inputs, numbered)
        moved = _of(found, key)
    except Refused:
        return None
    if moved is None or moved.shape != output.shape or not floating(moved):
        return None
    table = np.array([0, *sets], dtype=np.int32)
    places = np.real(moved).astype(np.int64)
    return table[np.where((places >= 0) & (places < len(table)), places, 0)]


def _room(output: Tensor) -> int:
    """How many sets can be told apart by the whole numbers of a dtype."""
    try:
        return 1 << (format_of(dtype_name(output.dtype)).fraction_bits + 1)
    except UsageError:
        return 1


def _of(outputs: list[Value], key: Key) -> Tensor | None:
    """One tensor of what a node gave."""
    if key[0] >= len(outputs):
        return None
    return dict(tensors(outputs[key[0]], key[:1])).get(key)


# -- experiment ------------------------------------------------------------------------------------------------------


def _by_experiment(question: Question, key: Key, output: Tensor, bad: Mask) -> Verdict:
    """Replace bad operand elements and look which output elements recover."""
    carriers, labels = question.carriers, question.labels

    def rerun(name: str, keep: Callable[[Carrier], Mask | None]) -> Mask:
        """Which output elements are bad when only the operand elements chosen by `keep` stay bad."""

        def replaced(at: Key, tensor: Tensor) -> Tensor:
            carrier = carriers.get(at)
            if carrier is None:
                return tensor
            gone = np.zeros(tensor.shape, dtype=np.bool_)
            for plane in carrier.planes:
                gone |= plane != 0
            kept = keep(carrier)
            if kept is not None:
                gone &= ~kept
            return np.where(gone, constant_like(tensor, 1), tensor)

        found = question.answers.get(name)
        if found is None:
            found = question.answers[name] = question.experiments.run(question.node, question.inputs, replaced)
        tensor = _of(found, key)
        if tensor is None or tensor.shape != output.shape or not floating(tensor):
            raise Refused(name)
        return bad_mask(tensor)

    sets = sorted({s for c in carriers.values() if c.explains is not None for s in labels.present(c.explains)})
    literals = {s for c in carriers.values() if c.literal is not None for s in labels.present(c.literal)}
    whole = labels.intern(labels.of(sets)) if sets else 0
    carried = _empty(output)
    nothing = np.zeros(output.shape, dtype=np.bool_)
    try:
        still = rerun("none", lambda _c: None) & bad
        if sets and still.any():
            # bad without the bad operands too: theirs all the same where they alone suffice
            still &= ~_by_them_alone(question, key, output)
        rest = bad & ~still
        if len(sets) == 1 and not literals:
            return Verdict(np.where(rest, np.int32(whole), carried), still)
        for set_id in sets[:MAX_SEPARATE]:
            hit = rest & rerun(f"set {set_id}", lambda c, s=set_id: None if c.explains is None else c.explains == s)
            carried = labels.union(carried, np.where(hit, np.int32(set_id), np.int32(0)))
        rest = rest & (carried == 0)
        born, causes = still, frozenset[int]()
        if literals and rest.any():
            hit = rest & rerun("literals", lambda c: None if c.literal is None else c.literal != 0)
            any_nan = any(c.literal_nan for c in carriers.values())
            made = nothing if any_nan else hit & nan_mask(output)
            carried = np.where(hit & ~made, np.int32(labels.intern(labels.of(literals))), carried)
            born = born | made
            rest = rest & ~hit
            causes = labels.of(literals) if made.any() else causes
    except Refused:  # replaced operands may be refused: all labels to all bad elements
        if whole:
            return Verdict(np.where(bad, np.int32(whole), carried), nothing)
        # an infinity is taken for the one that was there, a NaN for one that was computed from it
        copied = bad & ~nan_mask(output) if literals else nothing
        source = np.int32(labels.intern(labels.of(literals)))
        return Verdict(np.where(copied, source, carried), bad & ~copied, labels.of(literals))
    if rest.any():
        # bad only together (or more sets than are asked apart)
        if whole:
            carried = np.where(rest, np.int32(whole), carried)
        else:
            born, causes = born | rest, causes | labels.of(literals)
    return Verdict(carried.astype(np.int32, copy=False), born, causes)


def _by_them_alone(question: Question, key: Key, output: Tensor) -> Mask:
    """Which output elements the known bad operand elements make bad when every other element is 1."""

    def alone(at: Key, tensor: Tensor) -> Tensor:
        if not floating(tensor):
            return tensor
        one = constant_like(tensor, 1)
        carrier = question.carriers.get(at)
        if carrier is None or carrier.explains is None:
            return np.broadcast_to(one, tensor.shape).copy()
        return np.where(carrier.explains != 0, tensor, one)

    found = _of(question.experiments.run(question.node, question.inputs, alone), key)
    if found is None or found.shape != output.shape:
        raise Refused("another shape")
    return bad_mask(found)
