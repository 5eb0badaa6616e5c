"""What made the operand bad: from the decisive operand of a birth back to the node that explains its value."""

# pyright: strict

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.onnx.experiments import Experiments, Refused
from whynan.capture.onnx.masks import at, dtype_name, finite_range, floating, tensors
from whynan.capture.onnx.operands import locate
from whynan.capture.onnx.places import Places
from whynan.capture.onnx.schemas import attribute, operand_names
from whynan.capture.onnx.sentences import CLIPS, Part, least, phrase, text, to_follow, underflow
from whynan.ops.onnx import CONSTANTS, CONTROL, MOVEMENT, POINTWISE, PRODUCTS, RANDOM, RESHAPES
from whynan.records import ChainLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.levels import Level, Levels
    from whynan.capture.onnx.operands import Index
    from whynan.records import Operand

HOPS: Final = 6
MOST_WANTED: Final = 64


@dataclass(frozen=True, slots=True)
class Spot:
    """One element of a value, or with no index the whole of it, as the level of this number sees it."""

    name: str
    index: Index | None
    depth: int


class Causes:
    """Walks the values that are remembered."""

    def __init__(self, levels: Levels, places: Places, experiments: Experiments) -> None:
        self.levels = levels
        self.places = places
        self.experiments = experiments
        self.wanted: dict[str, None] = {}
        """Values that would have told more, had they been kept."""

    def links(self, node: Node, inputs: Sequence[Value], operands: tuple[Operand, ...]) -> tuple[ChainLink, ...]:
        """The nodes that made the birth's decisive operand what it is, oldest first."""
        chosen = decisive(operands)
        names = operand_names(node)
        if chosen is None or chosen.name not in names:
            return ()
        position = names.index(chosen.name)
        spot: Spot | None = Spot(node.inputs[position], chosen.index, len(self.levels.stack) - 1)
        tensor = np.asarray(inputs[position])
        value: Any = chosen.value if chosen.index is not None else tensor
        links: list[ChainLink] = []
        for hop in range(HOPS):
            if spot is None or not spot.name:
                break
            link, spot, value = self._one(spot, value, HOPS - hop)
            if link is not None:
                links.append(link)
        return tuple(reversed(links))

    def _one(self, spot: Spot, value: Any, hops: int) -> tuple[ChainLink | None, Spot | None, Any]:
        """The node that wrote an element, in a sentence with its values, and where to look next."""
        found = self._level(spot)
        if found is None:
            return None, None, None
        level, depth = found
        if spot.name in level.kinds:
            return self._outside(level.kinds[spot.name], spot, value), None, None
        if spot.name in level.carried and spot.name not in level.writers:
            outer = level.carried[spot.name]
            return (None, Spot(outer, spot.index, depth - 1), value) if outer and depth else (None, None, None)
        node = level.writers[spot.name].node
        if spot.index is None:
            low, high = finite_range(np.asarray(value))
            said = f"{node.op} made it" if low is None else f"{node.op} made it, from {text(low)} to {text(high)}"
            return self._link(node, said), None, None
        if node.op in CONSTANTS:
            return self._link(node, f"the model writes {text(value)}"), None, None
        if node.op in RANDOM or node.op in CONTROL:
            verb = "drew" if node.op in RANDOM else "made it"
            return self._link(node, f"{node.op} {verb} {text(value)}"), None, None
        inputs = [self._kept(name, depth) for name in node.inputs]
        if any(kept is None and name for kept, name in zip(inputs, node.inputs, strict=True)):
            self._want(node, depth, hops)
            return self._link(node, f"{node.op} made it {text(value)}"), None, None
        return self._explained(node, inputs, spot, value, depth)

    def _explained(
        self, node: Node, inputs: list[Tensor | None], spot: Spot, value: Any, depth: int
    ) -> tuple[ChainLink | None, Spot | None, Any]:
        index = spot.index
        assert index is not None
        dtype = self._dtype(spot, inputs)
        if node.op in MOVEMENT or node.op in RESHAPES:
            moved = self._moved(node, inputs, index, node.outputs.index(spot.name))
            if moved is None:
                return self._link(node, f"{node.op} made it {text(value)}"), None, None
            position, place = moved
            return None, Spot(node.inputs[position], place, depth), value
        if node.op in PRODUCTS and (term := _term(node, inputs, index, value)) is not None:
            said, position, place, factor = term
            return self._link(node, said), Spot(node.inputs[position], place, depth) if place else None, factor
        parts = _parts(node, inputs, index)
        first = next((p for p in parts if p.place is not None), None)
        if node.op in ("Cast", "CastLike") and first is not None:
            lost = value == 0 and first.value != 0
            link = self._link(node, f"{text(first.value)} as {dtype} is {text(value)}{least(dtype)}") if lost else None
            return link, Spot(first.name, first.place, depth), first.value
        if node.op in CLIPS and first is not None and isinstance(first.value, (int, float)) and first.value != value:
            return self._link(node, f"{node.op} made {text(first.value)} into {text(value)}"), None, None
        seen = [p for p in parts if p.value is not None]
        rows = [p for p in parts if p.row is not None]
        if rows and not [p for p in seen if p.place is not None]:
            low, high = rows[0].row or (None, None)
            of = f"a row of {text(low)}" if low == high else f"values from {text(low)} to {text(high)}"
            return self._link(node, f"{node.op} of {of} is {text(value)}"), None, None
        if not seen:
            return self._link(node, f"{node.op} gives {text(value)}"), None, None
        said = f"{phrase(node.op, seen)} is {text(value)}{underflow(node.op, value, seen, dtype)}"
        follow = to_follow(node.op, value, parts)
        if follow is None:
            return self._link(node, said), None, None
        return self._link(node, said), Spot(follow.name, follow.place, depth), follow.value

    # -- where things are ----------------------------------------------------------------------------------------

    def _level(self, spot: Spot) -> tuple[Level, int] | None:
        for depth in range(min(spot.depth, len(self.levels.stack) - 1), -1, -1):
            level = self.levels.stack[depth]
            if spot.name in level.writers or spot.name in level.carried or spot.name in level.kinds:
                return level, depth
        return None

    def _kept(self, name: str, depth: int) -> Tensor | None:
        found = self._level(Spot(name, None, depth)) if name else None
        return None if found is None else found[0].values.get(name)

    def _want(self, node: Node, depth: int, hops: int) -> None:
        """Ask for what this walk would have read on its way."""
        ahead: list[Node] = [node]
        for _ in range(hops):
            names = [name for each in ahead for name in each.inputs if name]
            ahead.clear()
            for name in names:
                if len(self.wanted) >= MOST_WANTED:
                    return
                self.wanted[name] = None
                found = self._level(Spot(name, None, depth))
                if found is not None and name in found[0].writers:
                    ahead.append(found[0].writers[name].node)

    def _dtype(self, spot: Spot, inputs: list[Tensor | None]) -> str:
        kept = self._kept(spot.name, spot.depth)
        known = kept if kept is not None else next((t for t in inputs if t is not None and floating(t)), None)
        return "float32" if known is None else dtype_name(known.dtype)

    def _moved(self, node: Node, inputs: list[Tensor | None], index: Index, output: int) -> tuple[int, Index] | None:
        """The operand and the element of it that a moving node has put in this place: it moves their numbers."""
        sizes = [0 if t is None or not floating(t) else t.size for t in inputs]
        first = next((i for i, t in enumerate(inputs) if t is not None), None)
        if first is None:
            return None
        if node.op in RESHAPES or node.op == "Transpose":
            tensor = inputs[first]
            assert tensor is not None
            numbers = np.arange(tensor.size).reshape(tensor.shape)
            if node.op == "Transpose":
                moved = np.transpose(numbers, attribute(node, "perm") or None)
            else:
                # by the row: the shape of what was written is that of what is looked at
                return self._reshaped(node, tensor, index, output)
            return first, _unravel(int(moved[index]), tensor.shape)
        starts = np.cumsum([1, *sizes])
        if starts[-1] >= 1 << 24:
            return None

        def numbered(key: tuple[int, ...], tensor: Tensor) -> Tensor:
            if not floating(tensor):
                return tensor
            start = int(starts[key[0]])
            return np.arange(start, start + tensor.size, dtype=np.float64).reshape(tensor.shape).astype(tensor.dtype)

        try:
            found = dict(tensors(self.experiments.run(node, inputs, numbered)[output], (output,))).get((output,))
        except (Refused, IndexError):
            return None
        if found is None or dtype_name(found.dtype) not in ("float32", "float64") or len(index) != found.ndim:
            return None
        place = int(found[index])
        for i, tensor in enumerate(inputs):
            if tensor is not None and sizes[i] and starts[i] <= place < starts[i] + sizes[i]:
                return i, _unravel(place - int(starts[i]), tensor.shape)
        return None

    def _reshaped(self, node: Node, tensor: Tensor, index: Index, output: int) -> tuple[int, Index] | None:
        written = self._kept(node.outputs[output], len(self.levels.stack) - 1)
        if written is None or written.size != tensor.size:
            return None
        return 0, _unravel(int(np.ravel_multi_index(index, written.shape)), tensor.shape)

    def _outside(self, kind: str, spot: Spot, value: Any) -> ChainLink:
        place = "" if not spot.index else str(list(spot.index))
        told = "" if spot.index is None else f" is {text(value)}"
        return ChainLink(
            role="cause", op=None, phase="inference", site=None, summary=f"{kind} {spot.name}{place}{told}"
        )

    def _link(self, node: Node, summary: str) -> ChainLink:
        event = self.places.event(0, node, next((o for o in node.outputs if o), ""))
        return ChainLink(
            role="cause", op=event.op, phase="inference", site=event.site, node=event.node, summary=summary
        )


def decisive(operands: tuple[Operand, ...]) -> Operand | None:
    """The operand that a birth turns on: the zero, else the greatest in magnitude."""
    known = [o for o in operands if o.dtype is not None and isinstance(o.value, (int, float))]
    if not known:
        return None
    zeros = [o for o in known if o.value == 0]
    if zeros:
        return zeros[-1]
    return max(known, key=lambda o: _magnitude(float(o.value or 0)))


def _magnitude(value: float) -> float:
    return math.inf if math.isnan(value) else abs(value)


def _unravel(place: int, shape: tuple[int, ...]) -> Index:
    return tuple(int(i) for i in np.unravel_index(place, shape)) if shape else ()


def _parts(node: Node, inputs: list[Tensor | None], index: Index) -> list[Part]:
    found: list[Part] = []
    for position, tensor in enumerate(inputs):
        if tensor is None or tensor.dtype.kind in "OUS" or not (floating(tensor) or node.op in POINTWISE):
            # an axis or a shape has no part in a value
            continue
        place, region = locate(node, inputs, position, index)
        name = node.inputs[position]
        if region is not None:
            low, high = finite_range(region)
            if floating(tensor) and low is not None and high is not None:
                found.append(Part(name, row=(float(low), float(high))))
        elif place is not None and (floating(tensor) or node.op != "Where"):
            found.append(Part(name, at(tensor, place), None, place))
    return found


def _term(
    node: Node, inputs: list[Tensor | None], index: Index, value: Any
) -> tuple[str, int, Index | None, float] | None:
    """The greatest term of a sum of products, in words, and the factor of it to follow; None where there is none."""
    first, second = (locate(node, inputs, i, index)[1] for i in (0, 1))
    if first is None or second is None or first.ndim != 1 or first.shape != second.shape or not first.size:
        return None
    if not isinstance(value, (int, float)) or not floating(first):
        return None
    a, b = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(all="ignore"):
        k = int(np.argmax(np.nan_to_num(np.abs(a * b), nan=np.inf)))
    x, y = float(a[k]), float(b[k])
    side = int((abs(x) < abs(y)) if abs(value) >= 1 else (abs(x) > abs(y)))
    what = f"{text(x)} times {text(y)}"
    if value == 0:
        said = f"each term of the product is 0, such as {what}"
    elif x * y == value:
        said = f"{what} is {text(value)}"
    else:
        said = f"{what}, the greatest term of the product, makes it {text(value)}"
    return said, side, _place(node, inputs, side, index, k), (x, y)[side]


def _place(node: Node, inputs: list[Tensor | None], side: int, index: Index, k: int) -> Index | None:
    """Where term number k lies in a factor."""
    tensor = inputs[side]
    assert tensor is not None
    numbers = np.arange(tensor.size).reshape(tensor.shape)
    given: list[Tensor | None] = list(inputs)
    given[side] = numbers
    region = locate(node, given, side, index)[1]
    return None if region is None or region.ndim != 1 else _unravel(int(region[k]), tensor.shape)
