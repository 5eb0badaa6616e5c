"""What an engine computes in float32 though the model is written in float16: whose result is out of range then.

ONNX Runtime's CPU has few kernels of float16. It puts casts around the nodes, and leaves out those between them: a
number that float16 has no room for becomes infinite only at the next cast back, which the model does not have.
"""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.capture.onnx.covers import MOVES
from whynan.capture.onnx.masks import dtype_name
from whynan.capture.onnx.operands import element_operands
from whynan.capture.onnx.schemas import operand_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.levels import Levels, Written
    from whynan.capture.onnx.operands import Index
    from whynan.capture.onnx.places import Places

_HOPS: Final = 6
_NARROW: Final = np.dtype(np.float16)


@dataclass(frozen=True, slots=True)
class Told:
    """A node as a birth is told of it: what it read, and which element.

    Where it ran before the birth, ``way`` leads from it to the node that bore it, which is left out.
    """

    node: Node
    inputs: Sequence[Value]
    index: Index
    way: tuple[Written, ...] = ()
    made_of: str | None = None


def behind(told: Told, output: Tensor, levels: Levels, places: Places) -> Told:
    """The node that a birth is told of, instead of a cast that the engine has put in.

    It is the first whose result the model's type has no room for, as far back as operands are known; the cast itself
    where they are not.
    """
    cast = told.node
    if cast.op != "Cast" or output.dtype != _NARROW or not places.is_added(cast):
        return told
    wide = dtype_name(np.asarray(told.inputs[0]).dtype)
    found = told
    for _ in range(_HOPS):
        before = next(_too_large(found, levels), None)
        if before is None:
            break
        what = "it" if found is told else "what is made of it"
        made_of = f"{before.node.op} is computed in {wide} here, and {cast.op} {cast.name} rounds {what}"
        found = replace(before, made_of=made_of)
    return found


def _too_large(told: Told, levels: Levels) -> Iterator[Told]:
    """The nodes that wrote an operand of an element which the narrow type has no room for."""
    most = float(np.finfo(_NARROW).max)
    places = dict(zip(operand_names(told.node), told.node.inputs, strict=False))
    for operand in element_operands(told.node, told.inputs, told.index):
        number = operand.value if isinstance(operand.value, (int, float)) else 0.0
        written = levels.here.writers.get(places.get(operand.name, ""))
        if operand.index is None or not most < abs(number) < np.inf or written is None or written.node.op in MOVES:
            continue
        inputs = [levels.value(name) if name else None for name in written.node.inputs]
        known = all(value is not None or not name for value, name in zip(inputs, written.node.inputs, strict=True))
        if known and written.node.outputs[0] == places[operand.name]:
            yield Told(written.node, inputs, operand.index, (written, *told.way))
