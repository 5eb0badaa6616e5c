"""What made the operand bad: from the decisive operand of a birth back to the node that explains its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.onnx.arrays import same_bits
from whynan.capture.onnx.counts import dtype_name, finite_range, is_floating, tensors, value_at
from whynan.capture.onnx.execution import NCHWC, attribute, operand_names
from whynan.capture.onnx.graph.names import is_reordered
from whynan.capture.onnx.graph.sites import Places, path_of
from whynan.capture.onnx.provenance.interventions import Experiments
from whynan.capture.onnx.provenance.operands import locate
from whynan.capture.onnx.provenance.roles import decisive_operand
from whynan.capture.provenance.chain import Dialect, Part, decisive_term, explain_event
from whynan.capture.provenance.dependence import Refused
from whynan.ops.table import ONNX
from whynan.records import ChainLink, Note, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.provenance.body_scopes import Scope, Scopes
    from whynan.capture.onnx.provenance.operands import Index
    from whynan.records import BirthKind, Operand

HOPS: Final = 6
_DIALECT: Final = Dialect(
    transparent=frozenset(("Cast", "CastLike")),
    clips=ONNX.having("clips"),
    scales=ONNX.having("scale"),
)


@dataclass(frozen=True, slots=True)
class Spot:
    """One element of a value, or with no index the whole of it, as a scope sees it."""

    name: str
    index: Index | None
    scope: Scope


class Causes:
    """Walks the values that are remembered."""

    def __init__(self, scopes: Scopes, places: Places, experiments: Experiments) -> None:
        self.scopes = scopes
        self.places = places
        self.experiments = experiments

    def links(
        self, node: Node, inputs: Sequence[Value], index: Index, kind: BirthKind, operands: tuple[Operand, ...]
    ) -> tuple[ChainLink, ...]:
        """The nodes that made the decisive operand of a birth at this element what it is, oldest first."""
        chosen = decisive_operand(node, inputs, index, kind, operands)
        names = operand_names(node)
        if chosen is None or chosen.name not in names:
            return ()
        position = names.index(chosen.name)
        spot: Spot | None = Spot(node.inputs[position], chosen.index, self.scopes.here)
        tensor = np.asarray(inputs[position])
        value: Any = chosen.value if chosen.index is not None else tensor
        links: list[ChainLink] = []
        for _ in range(HOPS):
            if spot is None or not spot.name:
                break
            link, spot, value = self._explain_element(spot, value)
            if link is not None:
                links.append(link)
        return tuple(reversed(links))

    def _explain_element(self, spot: Spot, value: Any) -> tuple[ChainLink | None, Spot | None, Any]:
        """The node that wrote an element, in a sentence with its values, and where to look next."""
        scope = scope_of(spot.name, spot.scope)
        if scope is None:
            return None, None, None
        if spot.name in scope.kinds:
            return self._outside(scope, spot, value), None, None
        if spot.name not in scope.writers:
            return self._carried(scope, spot, value)
        node = scope.writers[spot.name].node
        if spot.index is None and node.op in ONNX.having("reshape"):
            return None, Spot(node.inputs[0], None, scope), value
        if spot.index is None:
            low, high = finite_range(np.asarray(value))
            said = Note.create("made_range", operator=node.op, low=shown(low), high=shown(high))
            return self._link(node, said), None, None
        if node.op in ONNX.having("constant"):
            return self._link(node, Note.create("model_writes", result=shown(value))), None, None
        if node.op in ONNX.having("random"):
            return self._link(node, Note.create("drew", operator=node.op, result=shown(value))), None, None
        if node.op in ONNX.having("control"):
            return self._within(node, scope, spot, value)
        inputs = [self._kept(name, scope) for name in node.inputs]
        unknown = any(kept is None and name for kept, name in zip(inputs, node.inputs, strict=True))
        if unknown or node.domain == NCHWC:
            return self._link(node, Note.create("made", operator=node.op, result=shown(value))), None, None
        return self._explained(node, inputs, spot, value, scope)

    def _explained(
        self, node: Node, inputs: list[Tensor | None], spot: Spot, value: Any, scope: Scope
    ) -> tuple[ChainLink | None, Spot | None, Any]:
        index = spot.index
        assert index is not None
        dtype = self._dtype(spot, inputs)
        if node.op in ONNX.having("movement", "reshape"):
            moved = self._moved(node, inputs, index, node.outputs.index(spot.name), scope)
            if moved is None:
                return self._link(node, Note.create("made", operator=node.op, result=shown(value))), None, None
            position, place = moved
            return None, Spot(node.inputs[position], place, scope), value
        if node.op in ONNX.having("product") and (found := self._product(node, inputs, spot, value)) is not None:
            return found
        if node.op == "Softmax" and value == 0 and _is_masked(inputs[0], index):
            link = self._link(node, Note.create("logit_of_infinity", operator=node.op, result=shown(value)))
            return link, Spot(node.inputs[0], index, scope), float("-inf")
        said, part = explain_event(_DIALECT, node.op, value, _parts(node, inputs, index), dtype)
        link = None if said is None else self._link(node, said)
        if part is None or part.place is None:
            return link, None, None
        return link, Spot(part.holder, part.place, scope), part.value

    def _product(
        self, node: Node, inputs: list[Tensor | None], spot: Spot, value: Any
    ) -> tuple[ChainLink | None, Spot | None, Any] | None:
        """The greatest term of a sum of products; None where what is added to it is greater, or it is no such sum."""
        index = spot.index
        assert index is not None
        rows = [locate(node, inputs, i, index)[1] for i in (0, 1)]
        if rows[0] is None or rows[1] is None or not is_floating(rows[0]) or not isinstance(value, (int, float)):
            return None
        computed = [scope_of(name, spot.scope) for name in node.inputs[:2]]
        known = [
            scope is not None and name in scope.writers for scope, name in zip(computed, node.inputs, strict=False)
        ]
        first, second = (row.astype(np.float64) for row in rows if row is not None)
        term = decisive_term(first, second, value, (known[0], known[1]))
        added = [abs(p.number) for p in _parts(node, inputs, index) if p.place is not None and p.number is not None]
        if term is None or any(each > abs(term.factors[0] * term.factors[1]) for each in added):
            return None
        place = _place(node, inputs, term.side, index, term.place)
        follow = Spot(node.inputs[term.side], place, spot.scope) if place else None
        return self._link(node, term.said(value)), follow, term.factors[term.side]

    # -- bodies --------------------------------------------------------------------------------------------------

    def _carried(self, scope: Scope, spot: Spot, value: Any) -> tuple[ChainLink | None, Spot | None, Any]:
        """What an input of a body is: an output of the iteration before, a value around, or a slice of one."""
        outer = scope.carried[spot.name]
        around = (each for each in (scope.before, scope.outer) if scope_of(outer, each) is not None)
        holder = next(around, None)
        if not outer or holder is None:
            return self._handed(scope, spot, value), None, None
        if spot.index is None:
            return None, Spot(outer, None, holder), value
        whole, part = self._kept(outer, holder), scope.values.get(spot.name)
        if whole is None or part is None:
            return self._handed(scope, spot, value), None, None
        index = index_in_whole(whole, part, spot.index, scope)
        if index is None:
            return self._handed(scope, spot, value), None, None
        return None, Spot(outer, index, holder), value

    def _within(self, node: Node, scope: Scope, spot: Spot, value: Any) -> tuple[ChainLink | None, Spot | None, Any]:
        """What a node with bodies gave is what its last iteration left, but for what is made of all of them."""
        link = self._link(node, Note.create("made", operator=node.op, result=shown(value)))
        last, name = scope.inside.get(spot.name, (None, ""))
        if last is None or spot.index is None:
            return link, None, None
        left, made = self._kept(name, last), self._kept(spot.name, scope)
        if left is None or (made is not None and left.shape != made.shape) or left.ndim != len(spot.index):
            return link, None, None
        return (
            (None, Spot(name, spot.index, last), value) if value_at(left, spot.index) == value else (link, None, None)
        )

    def _handed(self, scope: Scope, spot: Spot, value: Any) -> ChainLink | None:
        """What a body was given, where it is not known how that came to be."""
        written = next(iter(scope.writers.values()), None)
        if written is None or spot.index is None:
            return None
        body = path_of(written.node).removesuffix("/")
        said = Note.create("body_begins", value_name=spot.name, index=spot.index, result=shown(value), body=body)
        return ChainLink(role="cause", op=None, phase="inference", site=None, typed_summary=said)

    # -- where things are ----------------------------------------------------------------------------------------

    def _kept(self, name: str, scope: Scope) -> Tensor | None:
        found = scope_of(name, scope) if name else None
        return None if found is None else found.values.get(name)

    def _dtype(self, spot: Spot, inputs: list[Tensor | None]) -> str:
        kept = self._kept(spot.name, spot.scope)
        known = kept if kept is not None else next((t for t in inputs if t is not None and is_floating(t)), None)
        return "float32" if known is None else dtype_name(known.dtype)

    def _moved(
        self, node: Node, inputs: list[Tensor | None], index: Index, output: int, scope: Scope
    ) -> tuple[int, Index] | None:
        """The operand and the element of it that a moving node has put in this place: it moves their numbers."""
        sizes = [0 if t is None or not is_floating(t) else t.size for t in inputs]
        first = next((i for i, t in enumerate(inputs) if t is not None), None)
        if first is None:
            return None
        if node.op in ONNX.having("reshape") or node.op == "Transpose":
            tensor = inputs[first]
            assert tensor is not None
            numbers = np.arange(tensor.size).reshape(tensor.shape)
            if node.op == "Transpose":
                moved = np.transpose(numbers, attribute(node, "perm") or None)
            else:
                # by the row: the shape of what was written is that of what is looked at
                return self._reshaped(node, tensor, index, output, scope)
            return first, _unravel(int(moved[index]), tensor.shape)
        starts = np.cumsum([1, *sizes])
        if starts[-1] >= 1 << 24:
            return None

        def numbered(key: tuple[int, ...], tensor: Tensor) -> Tensor:
            if not is_floating(tensor):
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
        self, node: Node, tensor: Tensor, index: Index, output: int, scope: Scope
    ) -> tuple[int, Index] | None:
        written = self._kept(node.outputs[output], scope)
        if written is None or written.size != tensor.size or written.ndim != len(index):
            return None
        return 0, _unravel(int(np.ravel_multi_index(index, written.shape)), tensor.shape)

    def _outside(self, scope: Scope, spot: Spot, value: Any) -> ChainLink:
        known = spot.index is not None
        told: dict[str, Any] = {"result": shown(value) if known else None, "known": known}
        if is_reordered(spot.name):
            # the file has none of this name
            said = Note.create("reordered", **told)
        else:
            said = Note.create("outside", sort=scope.kinds[spot.name], tensor=spot.name, index=spot.index, **told)
        return ChainLink(role="cause", op=None, phase="inference", site=None, typed_summary=said)

    def _link(self, node: Node, said: Note) -> ChainLink:
        event = self.places.event(0, node, next((o for o in node.outputs if o), ""))
        return ChainLink(
            role="cause", op=event.op, phase="inference", site=event.site, node=event.node, typed_summary=said
        )


def scope_of(name: str, scope: Scope | None) -> Scope | None:
    """The innermost scope, from one outwards, that has a value of this name."""
    while scope is not None:
        if name in scope.writers or name in scope.carried or name in scope.kinds:
            return scope
        scope = scope.outer
    return None


def index_in_whole(whole: Tensor, part: Tensor, index: Index, scope: Scope) -> Index | None:
    """The place in a value of an element of what a body was given of it: the whole, or the slice of its iteration."""
    if whole.shape == part.shape:
        return index
    ran = next((written.node.body for written in scope.writers.values()), ())
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
            or not (is_floating(tensor) or node.op in ONNX.having("pointwise", "scale"))
        ):
            # an axis or a shape has no part in a value
            continue
        place, region = locate(node, inputs, position, index)
        name = node.inputs[position]
        if region is not None:
            low, high = finite_range(region)
            if is_floating(tensor) and low is not None and high is not None:
                found.append(Part(row=(float(low), float(high))))
        elif place is not None and (is_floating(tensor) or node.op != "Where"):
            found.append(Part(value_at(tensor, place), None, name, place))
    return found


def _place(node: Node, inputs: list[Tensor | None], side: int, index: Index, k: int) -> Index | None:
    """Where term number k lies in a factor."""
    tensor = inputs[side]
    assert tensor is not None
    numbers = np.arange(tensor.size).reshape(tensor.shape)
    given: list[Tensor | None] = list(inputs)
    given[side] = numbers
    region = locate(node, given, side, index)[1]
    return None if region is None or region.ndim != 1 else _unravel(int(region[k]), tensor.shape)
