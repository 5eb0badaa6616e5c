"""Damage in a graph: nodes evaluated by ONNX's reference in float64, and the finite values that are wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.capture.onnx.counts import is_array, is_floating, tensors
from whynan.capture.onnx.provenance import planes
from whynan.capture.onnx.provenance.labels import Mark, compact, part_of
from whynan.capture.provenance.damage import LARGEST, Source, nan_of, record_step, taint_plane
from whynan.ops.table import ONNX
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.counts import Key
    from whynan.capture.onnx.execution import Node, Value
    from whynan.capture.onnx.provenance.attribution import Question
    from whynan.capture.onnx.provenance.labels import Marks

_COMPARES: Final = frozenset(("Equal",))


def add_shadow(question: Question, key: Key, mark: Mark) -> None:
    """A node carried a birth on, or bore it: what its bad elements are in float64, where that may be finite."""
    assert mark.plane is not None
    if len(key) > 1 or mark.plane.size > LARGEST:
        return
    born = (question.labels.birth(label).kind for label in question.labels.labels_in(mark.plane))
    shadowed = any(isinstance(m, Mark) and m.shadow is not None for m in question.marks)
    # a bad number of float32's range only is another in float64
    exact = question.exact(key) if shadowed or "overflow" in born else None
    if exact is not None and exact.shape == mark.plane.shape and exact.dtype == np.float64:
        mark.shadow = exact


def taint_outputs(question: Question, bad: Sequence[bool]) -> dict[int, Mark]:
    """A node read a birth or a tainted value, and wrote something finite: the marks of outputs that are tainted."""
    node = question.node
    if node.op in ONNX.having("value-free", "random", "control") or _asks(node, question.inputs):
        return {}
    found: dict[int, Mark] = {}
    sources = _sources(question, question.inputs, question.marks)
    dropped: list[Source] = []
    for position, output in enumerate(question.outputs if sources else ()):
        if bad[position] or not is_array(output) or isinstance(output, list) or not node.outputs[position]:
            continue
        tensor = np.asarray(output)
        if question.swallows and tensor.size and is_floating(tensor):
            dropped = list(nan_of(planes, sources).values())
        plane = taint_plane(question, (position,), tensor, sources)
        if plane is not None and plane.any():
            found[position] = Mark(taint=compact(plane))
    for source in dropped:
        kind = "place_of_nan" if node.op in ONNX.having("placing") else "drops_nan"
        record_step(question, source.plane, Note.create(kind, operator=node.op))
    return found


def _sources(question: Question, inputs: Sequence[Value], marks: Sequence[Marks]) -> dict[Key, Source]:
    found: dict[Key, Source] = {}
    for i, value in enumerate(inputs):
        for key, tensor in tensors(value, (i,)):
            mark = part_of(marks[i], key[1:]) if i < len(marks) else None
            if mark is None:
                continue
            plane = mark.taint if mark.taint is not None else mark.plane
            if plane is None or plane.shape != tensor.shape:
                continue
            if born := question.labels.born(plane):
                plane = question.labels.select(plane, born)
                found[key] = Source(tensor, plane, mark.taint is not None, mark.shadow)
    return found


def _asks(node: Node, inputs: Sequence[Value]) -> bool:
    """Whether a node only asks if its operand is finite, whichever way that is written."""
    if node.op in ONNX.having("predicate"):
        return True
    if node.op not in _COMPARES or len(inputs) != 2:
        return False
    if node.inputs[0] == node.inputs[1]:
        return True
    return any(
        is_floating(v) and not isinstance(v, list) and v is not None and v.size == 1 and bool(np.isinf(v).all())
        for v in inputs
    )
