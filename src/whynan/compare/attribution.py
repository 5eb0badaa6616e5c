"""Attribution: whether a divergence is of the model, its lowering, its precision, optimisation, provider or engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from whynan.compare.sides.double import is_floating
from whynan.compare.spelling import base
from whynan.compare.tolerance import unit_roundoff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.compare.sides.operations import Array, Operation
    from whynan.compare.stretches import Culprit, SideRun

Origin = Literal["model", "lowering", "precision", "optimisation", "provider", "engine", "compiler"]
_CASTS: Final = ("Cast", "CastLike", "_to_copy", "to")


@dataclass(frozen=True, slots=True)
class Setting:
    """What is different in how B is run, where both sides are one model."""

    origin: Origin
    words: str


def attribute(a: SideRun, b: SideRun, culprit: Culprit, setting: Setting | None) -> Iterator[tuple[Origin, str]]:
    """Where a divergence comes from, the likeliest first, each with its evidence."""
    weights = list(_weights(a, b, culprit))
    settings = list(_settings(culprit))
    narrow = _narrowing(b, culprit)
    if narrow is not None:
        yield "precision", narrow
    for evidence in weights[:2] or settings[:2]:
        yield "model", evidence
    if setting is not None:
        yield setting.origin, f"the same model agrees with itself but for {setting.words}"
    elif not weights and not settings and narrow is None:
        yield _formula(a, b, culprit)


def _formula(a: SideRun, b: SideRun, culprit: Culprit) -> tuple[Origin, str]:
    """The formula or the kernel: by what exact arithmetic makes of both."""
    ours = " ".join(dict.fromkeys(o.op for o in culprit.other.operations)) or "nothing"
    theirs = " ".join(dict.fromkeys(o.op for o in culprit.stretch.operations))
    lowered: Origin = "lowering" if a.side.kind != b.side.kind else "model"
    if culprit.sort == "meaning":
        return lowered, f"{theirs} of B and {ours} of A are other functions in exact arithmetic"
    if len(culprit.stretch.operations) > 1 or [o.op for o in culprit.stretch.operations] != [
        o.op for o in culprit.other.operations
    ]:
        return lowered, f"{ours} of A is {theirs} in B, which loses here what A keeps"
    return "engine", f"{theirs} is the same on both sides, and B's engine computes it less exactly"


def _weights(a: SideRun, b: SideRun, culprit: Culprit) -> Iterator[str]:
    """Constants of the two stretches that are meant to be the same and are not."""
    ours, theirs = _constants(a, culprit.other.operations), _constants(b, culprit.stretch.operations)
    used: set[str] = set()
    for name, value in theirs:
        same_name = [(n, v) for n, v in ours if n == name and n not in used]
        same_shape = [(n, v) for n, v in ours if v.shape == value.shape and n not in used]
        partner = next(iter(same_name or same_shape), None)
        if partner is None or partner[1].shape != value.shape or partner[1].dtype.kind != value.dtype.kind:
            continue
        used.add(partner[0])
        evidence = _difference(name, value, *partner)
        if evidence is not None:
            yield evidence


def _difference(name: str, value: Array, other_name: str, other: Array) -> str | None:
    x, y = value.astype(np.float64), other.astype(np.float64)
    with np.errstate(all="ignore"):
        far = np.abs(x - y)
    if not far.size or not bool((far > 4 * unit_roundoff(value.dtype) * np.abs(y)).any()):
        return None
    index = np.unravel_index(int(np.nanargmax(far)), far.shape)
    place = f" at {[int(n) for n in index]}" if far.ndim else ""
    count = int((x != y).sum())
    return (
        f"the constant {name} of B is {x[index]:.6g}{place} where {other_name} of A is {y[index]:.6g} ({count} differ)"
    )


def _constants(run: SideRun, operations: tuple[Operation, ...]) -> list[tuple[str, Array]]:
    names = dict.fromkeys(name for operation in operations for name in operation.inputs if name)
    return [(name, value) for name in names if (value := run.side.constant(name)) is not None]


def _settings(culprit: Culprit) -> Iterator[str]:
    """Attributes of a node and of its partner, of the same type, that differ."""
    if len(culprit.stretch.operations) != 1 or len(culprit.other.operations) != 1:
        return
    theirs, ours = culprit.stretch.operations[0], culprit.other.operations[0]
    if theirs.op != ours.op:
        return
    for name in dict.fromkeys((*theirs.attributes, *ours.attributes)):
        one, other = theirs.attributes.get(name), ours.attributes.get(name)
        if one != other:
            yield f"{theirs.op} of B has {name} {_word(one)}, that of A {_word(other)}"


def _word(value: str | None) -> str:
    return "unset" if value is None else value


def _narrowing(b: SideRun, culprit: Culprit) -> str | None:
    """A cast to a narrower format, or a quantization to whole numbers of eight bits, on B's side alone."""
    ours = {base(o.op) for o in culprit.other.operations}
    for operation in culprit.stretch.operations:
        value = b.values.get(operation.outputs[0])
        read = b.value(operation.inputs[0]) if operation.inputs else None
        if base(operation.op) in ours or value is None or read is None:
            continue
        if any(one is not None and _is_quantized(one) for one in map(b.value, (*operation.inputs, *operation.outputs))):
            return f"{operation.op} {operation.name} of B computes with eight bits, A does not"
        if base(operation.op) not in _CASTS or not is_floating(value) or ours & {*_CASTS}:
            continue
        if unit_roundoff(value.dtype) > unit_roundoff(read.dtype):
            return f"{operation.op} {operation.name} of B rounds {read.dtype.name} to {value.dtype.name}, A does not"
    return None


def _is_quantized(value: Array) -> bool:
    return value.dtype.kind in "iu" and value.dtype.itemsize == 1
