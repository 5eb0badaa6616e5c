"""What made the operand bad: from the decisive operand of a birth back to the node that explains its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.onnx.arrays import same_bits
from whynan.capture.onnx.counts import at, dtype_name, finite_range, floating, tensors
from whynan.capture.onnx.execution import NCHWC, attribute, operand_names
from whynan.capture.onnx.graph.names import is_reordered
from whynan.capture.onnx.graph.sites import Places, path_of
from whynan.capture.onnx.provenance.chain import CLIPS, Part, computed, decisive, to_follow
from whynan.capture.onnx.provenance.interventions import Experiments
from whynan.capture.onnx.provenance.operands import locate
from whynan.capture.provenance.dependence import Refused
from whynan.floats import smallest
from whynan.ops.onnx import CONSTANTS, CONTROL, MOVEMENT, POINTWISE, PRODUCTS, RANDOM, RESHAPES, SCALES
from whynan.records import ChainLink, Note, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.provenance.levels import Level, Levels
    from whynan.capture.onnx.provenance.operands import Index
    from whynan.records import BirthKind, Operand

HOPS: Final = 6


@dataclass(frozen=True, slots=True)
class Spot:
    """One element of a value, or with no index the whole of it, as a level sees it."""

    name: str
    index: Index | None
    level: Level


class Causes:
    """Walks the values that are remembered."""

    def __init__(self, levels: Levels, places: Places, experiments: Experiments) -> None:
        self.levels = levels
        self.places = places
        self.experiments = experiments

    def links(
        self, node: Node, inputs: Sequence[Value], index: Index, kind: BirthKind, operands: tuple[Operand, ...]
    ) -> tuple[ChainLink, ...]:
        """The nodes that made the decisive operand of a birth at this element what it is, oldest first."""
        chosen = decisive(node, inputs, index, kind, operands)
        names = operand_names(node)
        if chosen is None or chosen.name not in names:
            return ()
        position = names.index(chosen.name)
        spot: Spot | None = Spot(node.inputs[position], chosen.index, self.levels.here)
        tensor = np.asarray(inputs[position])
        value: Any = chosen.value if chosen.index is not None else tensor
        links: list[ChainLink] = []
        for _ in range(HOPS):
            if spot is None or not spot.name:
                break
            link, spot, value = self._one(spot, value)
            if link is not None:
                links.append(link)
        return tuple(reversed(links))

    def _one(self, spot: Spot, value: Any) -> tuple[ChainLink | None, Spot | None, Any]:
        """The node that wrote an element, in a sentence with its values, and where to look next."""
        level = level_of(spot.name, spot.level)
        if level is None:
            return None, None, None
        if spot.name in level.kinds:
            return self._outside(level, spot, value), None, None
        if spot.name not in level.writers:
            return self._carried(level, spot, value)
        node = level.writers[spot.name].node
        if spot.index is None and node.op in RESHAPES:
            return None, Spot(node.inputs[0], None, level), value
        if spot.index is None:
            low, high = finite_range(np.asarray(value))
            said = Note.of("made_range", operator=node.op, low=shown(low), high=shown(high))
            return self._link(node, said), None, None
        if node.op in CONSTANTS:
            return self._link(node, Note.of("model_writes", result=shown(value))), None, None
        if node.op in RANDOM:
            return self._link(node, Note.of("drew", operator=node.op, result=shown(value))), None, None
        if node.op in CONTROL:
            return self._within(node, level, spot, value)
        inputs = [self._kept(name, level) for name in node.inputs]
        unknown = any(kept is None and name for kept, name in zip(inputs, node.inputs, strict=True))
        if unknown or node.domain == NCHWC:
            return self._link(node, Note.of("made", operator=node.op, result=shown(value))), None, None
        return self._explained(node, inputs, spot, value, level)

    def _explained(
        self, node: Node, inputs: list[Tensor | None], spot: Spot, value: Any, level: Level
    ) -> tuple[ChainLink | None, Spot | None, Any]:
        index = spot.index
        assert index is not None
        dtype = self._dtype(spot, inputs)
        if node.op in MOVEMENT or node.op in RESHAPES:
            moved = self._moved(node, inputs, index, node.outputs.index(spot.name), level)
            if moved is None:
                return self._link(node, Note.of("made", operator=node.op, result=shown(value))), None, None
            position, place = moved
            return None, Spot(node.inputs[position], place, level), value
        if node.op in PRODUCTS and (term := _term(node, inputs, index, value)) is not None:
            said, position, place, factor = term
            return self._link(node, said), Spot(node.inputs[position], place, level) if place else None, factor
        if node.op == "Softmax" and value == 0 and _is_masked(inputs[0], index):
            link = self._link(node, Note.of("logit_of_infinity", operator=node.op, result=shown(value)))
            return link, Spot(node.inputs[0], index, level), float("-inf")
        parts = _parts(node, inputs, index)
        first = next((p for p in parts if p.place is not None), None)
        if node.op in ("Cast", "CastLike") and first is not None:
            lost = value == 0 and first.value != 0
            said = Note.of(
                "cast", operand=shown(first.value), dtype=dtype, result=shown(value), smallest=smallest(dtype)
            )
            link = self._link(node, said) if lost else None
            return link, Spot(first.name, first.place, level), first.value
        if node.op in CLIPS and first is not None and isinstance(first.value, (int, float)) and first.value != value:
            return (
                self._link(
                    node, Note.of("turned_into", operator=node.op, operand=shown(first.value), result=shown(value))
                ),
                None,
                None,
            )
        seen = [p for p in parts if p.value is not None]
        rows = [p for p in parts if p.row is not None]
        if rows and not [p for p in seen if p.place is not None]:
            low, high = rows[0].row or (None, None)
            what: dict[str, Any] = {"operator": node.op, "result": shown(value)}
            said = (
                Note.of("row_of", operand=shown(low), **what)
                if low == high
                else Note.of("range_of", low=shown(low), high=shown(high), **what)
            )
            return self._link(node, said), None, None
        if not seen:
            return self._link(node, Note.of("gives", operator=node.op, result=shown(value))), None, None
        said = computed(node.op, value, seen, dtype)
        follow = to_follow(node.op, value, parts)
        if follow is None:
            return self._link(node, said), None, None
        return self._link(node, said), Spot(follow.name, follow.place, level), follow.value

    # -- bodies --------------------------------------------------------------------------------------------------

    def _carried(self, level: Level, spot: Spot, value: Any) -> tuple[ChainLink | None, Spot | None, Any]:
        """What an input of a body is: an output of the iteration before, a value around, or a slice of one."""
        outer = level.carried[spot.name]
        around = (each for each in (level.before, level.outer) if level_of(outer, each) is not None)
        holder = next(around, None)
        if not outer or holder is None:
            return self._handed(level, spot, value), None, None
        if spot.index is None:
            return None, Spot(outer, None, holder), value
        whole, part = self._kept(outer, holder), level.values.get(spot.name)
        if whole is None or part is None:
            return self._handed(level, spot, value), None, None
        index = within(whole, part, spot.index, level)
        if index is None:
            return self._handed(level, spot, value), None, None
        return None, Spot(outer, index, holder), value

    def _within(self, node: Node, level: Level, spot: Spot, value: Any) -> tuple[ChainLink | None, Spot | None, Any]:
        """What a node with bodies gave is what its last iteration left, but for what is made of all of them."""
        link = self._link(node, Note.of("made", operator=node.op, result=shown(value)))
        last, name = level.inside.get(spot.name, (None, ""))
        if last is None or spot.index is None:
            return link, None, None
        left, made = self._kept(name, last), self._kept(spot.name, level)
        if left is None or (made is not None and left.shape != made.shape) or left.ndim != len(spot.index):
            return link, None, None
        return (None, Spot(name, spot.index, last), value) if at(left, spot.index) == value else (link, None, None)

    def _handed(self, level: Level, spot: Spot, value: Any) -> ChainLink | None:
        """What a body was given, where it is not known how that came to be."""
        written = next(iter(level.writers.values()), None)
        if written is None or spot.index is None:
            return None
        body = path_of(written.node).removesuffix("/")
        said = Note.of("body_begins", value_name=spot.name, index=spot.index, result=shown(value), body=body)
        return ChainLink(role="cause", op=None, phase="inference", site=None, typed_summary=said)

    # -- where things are ----------------------------------------------------------------------------------------

    def _kept(self, name: str, level: Level) -> Tensor | None:
        found = level_of(name, level) if name else None
        return None if found is None else found.values.get(name)

    def _dtype(self, spot: Spot, inputs: list[Tensor | None]) -> str:
        kept = self._kept(spot.name, spot.level)
        known = kept if kept is not None else next((t for t in inputs if t is not None and floating(t)), None)
        return "float32" if known is None else dtype_name(known.dtype)

    def _moved(
        self, node: Node, inputs: list[Tensor | None], index: Index, output: int, level: Level
    ) -> tuple[int, Index] | None:
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
                return self._reshaped(node, tensor, index, output, level)
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

    def _reshaped(
        self, node: Node, tensor: Tensor, index: Index, output: int, level: Level
    ) -> tuple[int, Index] | None:
        written = self._kept(node.outputs[output], level)
        if written is None or written.size != tensor.size or written.ndim != len(index):
            return None
        return 0, _unravel(int(np.ravel_multi_index(index, written.shape)), tensor.shape)

    def _outside(self, level: Level, spot: Spot, value: Any) -> ChainLink:
        known = spot.index is not None
        told: dict[str, Any] = {"result": shown(value) if known else None, "known": known}
        if is_reordered(spot.name):
            # the file has none of this name
            said = Note.of("reordered", **told)
        else:
            said = Note.of("outside", sort=level.kinds[spot.name], tensor=spot.name, index=spot.index, **told)
        return ChainLink(role="cause", op=None, phase="inference", site=None, typed_summary=said)

    def _link(self, node: Node, said: Note) -> ChainLink:
        event = self.places.event(0, node, next((o for o in node.outputs if o), ""))
        return ChainLink(
            role="cause", op=event.op, phase="inference", site=event.site, node=event.node, typed_summary=said
        )


def level_of(name: str, level: Level | None) -> Level | None:
    """The innermost level, from one outwards, that has a value of this name."""
    while level is not None:
        if name in level.writers or name in level.carried or name in level.kinds:
            return level
        level = level.outer
    return None


def within(whole: Tensor, part: Tensor, index: Index, level: Level) -> Index | None:
    """The place in a value of an element of what a body was given of it: the whole, or the slice of its iteration."""
    if whole.shape == part.shape:
        return index
    ran = next((written.node.body for written in level.writers.values()), ())
    if whole.ndim != part.ndim + 1 or not ran:
        return None
    number = ran[-1][2]
    for axis in range(whole.ndim):
        for place in (number, whole.shape[axis] - 1 - number):
            if 0 <= place < whole.shape[axis] and same_bits(np.array(whole.take(place, axis)), part):
                return (*index[:axis], place, *index[axis:])
    return None


def _unravel(place: int, shape: tuple[int, ...]) -> Index:
    return tuple(int(i) for i in np.unravel_index(place, shape)) if shape else ()


def _is_masked(logits: Tensor | None, index: tuple[int, ...]) -> bool:
    """Whether the logit of a place is -Inf, whose softmax is 0 whatever else is in its row."""
    return logits is not None and logits.ndim == len(index) and logits[index] == float("-inf")


def _parts(node: Node, inputs: list[Tensor | None], index: Index) -> list[Part]:
    found: list[Part] = []
    for position, tensor in enumerate(inputs):
        if (
            tensor is None
            or tensor.dtype.kind in "OUS"
            or not (floating(tensor) or node.op in POINTWISE or node.op in SCALES)
        ):
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
) -> tuple[Note, int, Index | None, float] | None:
    """The greatest term of a sum of products, and the factor of it to follow; None where there is none."""
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
    said = Note.of("product_term", first=x, second=y, result=shown(value), exact=x * y == value)
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
