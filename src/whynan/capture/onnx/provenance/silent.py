"""Silent damage in a model: a guard that writes over healthy values, a cast that saturates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from whynan.capture.onnx.counts import dtype_name, first_index, is_floating, value_at
from whynan.capture.onnx.provenance.observer import BirthObserver
from whynan.capture.onnx.provenance.operands import element_of
from whynan.capture.provenance.dependence import FAR, is_guard, is_worth_reporting
from whynan.floats import FORMATS
from whynan.records import Damage, DamageKind, Operand
from whynan.traces import Silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.counts import Mask
    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.graph.sites import NodePlaces
    from whynan.capture.onnx.recorder import Recorder
    from whynan.traces import Trace

_COMPARING: Final = frozenset(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"))
_PASSING: Final = frozenset(("Not", "Identity", "Cast"))
"""What makes another mask of a mask."""
_HOPS: Final = 4
_SATURATING: Final = frozenset(("float8_e4m3fn",))


class _LostElements(NamedTuple):
    """What a node did to the elements of its output at `where`, which were those of `source` before."""

    kind: DamageKind
    where: Mask
    source: Tensor
    name: str
    numbers: dict[str, float]


class SilentDamageObserver(BirthObserver):
    """The observer of a run that looks for silent damage too; `reads` names what for."""

    def __init__(self, recorder: Recorder, sites: NodePlaces, *, ranges: bool, reads: frozenset[str]) -> None:
        super().__init__(recorder, sites, ranges=ranges)
        self._reads = reads
        self._silent: dict[tuple[object, ...], Silent] = {}

    def on_node(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """A node has run."""
        super().on_node(node, inputs, outputs)
        lost = None
        if node.op == "Where" and "masks" in self._reads:
            lost = self._guarded(node, inputs, outputs)
        elif node.op == "Cast" and "ranges" in self._reads:
            lost = _saturated(inputs, outputs)
        if lost is not None:
            self._tell(node, outputs, lost)

    def trace(self) -> Trace:
        """All that is known now."""
        return replace(super().trace(), silent=list(self._silent.values()))

    def _guarded(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> _LostElements | None:
        """A choice by a comparison with a small constant, between that and what was compared."""
        if len(inputs) != 3 or not outputs:
            return None
        for chosen, kept, name in ((1, 2, "Y"), (2, 1, "X")):
            constant, source, result = _constant(inputs[chosen]), inputs[kept], outputs[0]
            if constant is None or not is_floating(source) or not is_floating(result):
                continue
            threshold = self._threshold(node.inputs[0], node.inputs[kept])
            if threshold is not None:
                return _overwritten(np.asarray(source), np.asarray(result), constant, threshold, name)
        return None

    def _threshold(self, mask: str, source: str) -> float | None:
        """The small constant that a mask was made by a comparison with, if it was the source that was compared."""
        for _ in range(_HOPS):
            scope = self.scopes.scope_of(mask)
            written = None if scope is None else scope.writers.get(mask)
            if written is None:
                return None
            read = written.node.inputs
            if written.node.op in _COMPARING and source in read:
                other = read[1] if read[0] == source else read[0]
                home = self.scopes.scope_of(other)
                return _constant(None if home is None else home.values.get(other))
            if written.node.op not in _PASSING:
                return None
            mask = read[0]
        return None

    def _tell(self, node: Node, outputs: Sequence[Value], lost: _LostElements) -> None:
        key = (node.index, node.name, tuple(part[:2] for part in node.body))
        known = self._silent.get(key)
        if known is not None:
            known.occurrences += 1
            return
        index, result = first_index(lost.where), np.asarray(outputs[0])
        assert index is not None
        was = Operand(
            name=lost.name,
            index=index,
            value=value_at(lost.source, index),
            dtype=dtype_name(lost.source.dtype),
            origin="live",
            shape=tuple(int(s) for s in lost.source.shape),
        )
        element = element_of(result, lost.where, index, 0, (was,))
        damage = Damage(kind=lost.kind, concerned=element.count, total=element.total, numbers=lost.numbers)
        event = self.places.event(self._events - 1, node, node.outputs[0])
        self._silent[key] = Silent(event, element, damage)
        if event.site is not None and event.site.module:
            self._silent[key].modules[event.site.module] = None


def _constant(value: Value) -> float | None:
    """The small positive number that a tensor holds and nothing else."""
    if value is None or isinstance(value, list) or not is_floating(value):
        return None
    tensor = np.asarray(value)
    if not tensor.size or dtype_name(tensor.dtype) not in FORMATS:
        return None
    first = float(tensor.reshape(-1)[0])
    return first if is_guard(first) and bool((tensor == tensor.reshape(-1)[0]).all()) else None


def _overwritten(source: Tensor, result: Tensor, constant: float, threshold: float, name: str) -> _LostElements | None:
    if source.shape != result.shape:
        return None
    below = source < -FAR * max(constant, threshold)
    where = (result == np.asarray(constant, dtype=result.dtype)) & below & np.isfinite(source)
    if not is_worth_reporting(int(np.count_nonzero(where)), int(result.size)):
        return None
    numbers = {"eps": constant, "threshold": threshold, "worst": float(source[where].min())}
    return _LostElements("overwritten", where, source, name, numbers)


def _saturated(inputs: Sequence[Value], outputs: Sequence[Value]) -> _LostElements | None:
    """A cast to a format without infinities, of what is out of its range."""
    if not inputs or not outputs or not is_floating(inputs[0]) or not is_floating(outputs[0]):
        return None
    source, result = np.asarray(inputs[0]), np.asarray(outputs[0])
    kind = dtype_name(result.dtype)
    if kind not in _SATURATING or dtype_name(source.dtype) not in ("float16", "bfloat16", "float32", "float64"):
        return None
    most, sizes = FORMATS[kind].max, np.abs(source.astype(np.float64))
    where = (sizes > most * (1 + FORMATS[kind].eps / 2)) & (np.abs(result.astype(np.float64)) == most)
    if not where.any():
        return None
    return _LostElements("saturated", where, source, "input", {"limit": most, "largest": float(sizes.max())})
