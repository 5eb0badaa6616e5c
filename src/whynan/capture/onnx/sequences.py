"""What operators on sequences and optionals do to marks: they hand whole tensors on."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.execution import Node, Value
    from whynan.capture.onnx.labels import Marks


def passed(node: Node, inputs: Sequence[Value], marks: Sequence[Marks]) -> list[Marks] | None:
    """The marks of the outputs of an operator on sequences; None for every other, and where nothing is marked."""
    if not any(m is not None for m in marks):
        return None
    if node.op == "SequenceConstruct":
        return [list(marks)]
    if node.op in ("Optional", "OptionalGetElement", "Identity") and _whole(inputs, marks):
        return [marks[0]]
    held: Any = inputs[0] if inputs else None
    if not isinstance(held, list):
        return None
    entries = _entries(marks[0], len(held))  # pyright: ignore[reportUnknownArgumentType]
    if node.op == "SequenceAt":
        return [entries[_place(inputs[1], len(entries))]]
    if node.op == "SequenceErase":
        place = _place(inputs[1] if len(inputs) > 1 else None, len(entries), len(entries) - 1)
        return [[*entries[:place], *entries[place + 1 :]]]
    if node.op == "SequenceInsert":
        place = _place(inputs[2] if len(inputs) > 2 else None, len(entries), len(entries))
        return [[*entries[:place], marks[1], *entries[place:]]]
    return None


def _whole(inputs: Sequence[Value], marks: Sequence[Marks]) -> bool:
    return bool(inputs) and bool(marks)


def _entries(mark: Marks, count: int) -> list[Marks]:
    return list(mark) if isinstance(mark, list) else [None] * count


def _place(given: Value, count: int, default: int = 0) -> int:
    if given is None:
        return default
    place = int(np.asarray(given).reshape(-1)[0])
    return place + count if place < 0 else place
