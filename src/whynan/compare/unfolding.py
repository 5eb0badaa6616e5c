"""Unfolding: what a PyTorch program does in one operation, step by step, beside the nodes that an export has for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
from onnx import helper

from whynan.capture.onnx.arrays import kind_of
from whynan.compare.alignment import Aligner
from whynan.compare.fingerprints import distance
from whynan.compare.hazards import hazard_of
from whynan.compare.introduced import Search
from whynan.compare.localisation import SAME, rest_of
from whynan.compare.sides.onnx import OnnxSide
from whynan.compare.sides.operations import UnavailableError
from whynan.compare.sides.torch import TorchSide
from whynan.compare.sides.values import ValueStore
from whynan.compare.stretches import SideRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.compare.alignment import Alignment
    from whynan.compare.sides.operations import Array, Side
    from whynan.compare.stretches import Culprit

_MEMORY: Final = 256 << 20
_MISTAKEN: Final = 8
"""So many pairs that are taken for one quantity may be none."""
_MOST: Final = 400
"""Operations of a stretch; a longer one is not unfolded."""


def unfolded(a: SideRun, b: SideRun, alignment: Alignment, culprit: Culprit) -> Culprit:
    """A culprit of several nodes with the one at fault, as the operations tell that A's own are made of.

    The first is taken whose value mends the rest of the stretch where A's stands in its place: up to there it is bad,
    and behind it all is well.
    """
    operations = culprit.stretch.operations
    if not isinstance(a.side, TorchSide) or not isinstance(b.side, OnnxSide) or not 1 < len(operations) < _MOST:
        return culprit
    if culprit.sort == "kernel" or hazard_of(culprit):
        # known: the operation that is further from its own exact value than rounding, or what the exporter does
        return culprit
    target = a.value(culprit.other_value)
    theirs = {name: alignment.pairs[name][0] for name in culprit.stretch.cut if name in alignment.pairs}
    held = {name: v for name in culprit.other.cut if (v := a.value(name)) is not None}
    if target is None or set(theirs.values()) - set(held):
        return culprit
    try:
        mine = _ran(a.side.unfolded(culprit.other.operations, held, culprit.other_value), held)
        yours = _ran(_extracted(b.side, culprit), culprit.given)
    except UnavailableError:
        return culprit
    named = dict(zip(mine.side.inputs, mine.side.input_values, strict=True))
    inputs = {there: named[here] for there, here in theirs.items()}
    pairs = Aligner(mine, yours, inputs, {culprit.value: mine.side.output_values[0]}).align()
    for _ in range(_MISTAKEN):
        search = Search(mine, yours, pairs)
        found = next(search.culprits(), None)
        better = None if found is None else mine.value(found.other_value)
        if found is None or better is None:
            break
        if found.value == culprit.value or _mends(yours, culprit, found.value, better, target):
            if len(found.stretch.operations) == len(operations) and len(found.other.operations) < 2:
                break
            at = search.localised(found).operation
            return replace(culprit, operation=next(o for o in operations if o.outputs == at.outputs))
        # no value of A's is the same quantity
        pairs.remove(found.value)
    return culprit


def _mends(yours: SideRun, culprit: Culprit, value: str, better: Array, target: Array) -> bool:
    """Whether a stretch comes to what A has where one of its values is A's."""
    values = {name: v for name in (*yours.producers, *yours.side.inputs) if (v := yours.value(name)) is not None}
    known = {**values, value: better.reshape(values[value].shape).astype(values[value].dtype)}
    made = rest_of(yours, tuple(yours.side.operations), known, value, culprit.value)
    return made is not None and distance(made, target) < SAME


def _ran(side: Side, given: Mapping[str, Array]) -> SideRun:
    values = ValueStore(_MEMORY)
    side.run({name: given[name] for name in side.inputs}, values)
    return SideRun(side, values)


def _extracted(side: OnnxSide, culprit: Culprit) -> OnnxSide:
    """A stretch as a model of its own, which is given A's values."""
    operations = culprit.stretch.operations
    made = {name for operation in operations for name in operation.outputs}
    read = dict.fromkeys(name for o in operations for name in side.graph.reads[o.index] if name not in made)
    weights = {name: v for name in read if name not in culprit.given and (v := side.constant(name)) is not None}
    if set(read) - set(weights) - set(culprit.given):
        raise UnavailableError("not all that the stretch reads is known")
    graph = helper.make_graph(
        [side.graph.nodes[operation.index].proto for operation in operations],
        "stretch",
        [onnx.ValueInfoProto(name=name, type=kind_of(value)) for name, value in culprit.given.items()],
        [onnx.ValueInfoProto(name=culprit.value, type=kind_of(np.asarray(culprit.made)))],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = onnx.ModelProto(ir_version=side.graph.model.ir_version, graph=graph)
    model.opset_import.extend(side.graph.model.opset_import)
    model.functions.extend(side.graph.model.functions)
    return OnnxSide(side.label, model, side.graph.folder, side.settings, model)
