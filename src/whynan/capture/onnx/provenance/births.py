"""The records of what was born in a graph, of what came in, and of what the model itself writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.capture.onnx.counts import bad_mask, first_index, nan_mask
from whynan.capture.onnx.execution import NCHWC
from whynan.capture.onnx.graph.sites import Places, level_of
from whynan.capture.onnx.provenance.attribution import Question
from whynan.capture.onnx.provenance.labels import Labels, Mark, compact
from whynan.capture.onnx.provenance.neighbourhood import NodeNeighbourhoods
from whynan.capture.onnx.provenance.operands import Subject, before_cast, element_of, element_operands, kind_of
from whynan.capture.provenance.births import SEPARATE, NamedLiterals, masks_of_limits
from whynan.floats import infinity
from whynan.ops.table import ONNX
from whynan.records import ChainLink, Note
from whynan.traces import Birth, Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.capture.onnx.counts import Key, Mask
    from whynan.capture.onnx.execution import Node, Tensor
    from whynan.capture.onnx.provenance.causes import Causes
    from whynan.capture.onnx.provenance.labels import Plane

APART: Final = 8
"""So few elements that were born together are told apart, so that each has its own fate."""


class Roots:
    """All births and literals of a run."""

    def __init__(self, labels: Labels, places: Places, causes: Causes) -> None:
        self.labels = labels
        self.places = places
        self.causes = causes
        self.nearby = NodeNeighbourhoods(causes.scopes)
        self._groups: dict[object, list[int]] = {}
        self._entered: dict[object, int] = {}
        self._derived = NamedLiterals(labels)

    # -- births --------------------------------------------------------------------------------------------------

    def add_birth(
        self,
        question: Question,
        key: Key,
        output: Tensor,
        mask: Mask,
        count: int,
        made_from: frozenset[int],
        ordinal: int,
    ) -> int:
        """A birth at the first true element of a mask, one of `count` of its kind; gives the id of its set."""
        index = first_index(mask)
        assert index is not None
        subject = before_cast(Subject(question.node, question.inputs, index), output, self.causes.scopes, self.places)
        node, inputs = subject.node, subject.inputs
        # in blocks of channels no element lies where its operator says
        operands = () if node.domain == NCHWC else element_operands(node, inputs, subject.index)
        name = node.outputs[key[0]] if key[0] < len(node.outputs) else ""
        element = element_of(output, mask, index, key[0], operands).model_copy(update={"count": count})
        kind = kind_of(node.op, element.value, operands)
        group = self._groups.setdefault((level_of(question.node), question.node.index, key[0], kind), [])
        if len(group) >= SEPARATE:
            self.labels.only(group[-1]).occurrences += 1
            return group[-1]
        event = replace(
            self.places.event(ordinal, node, name), made_of=subject.made_of or self.places.fusion_note(node)
        )
        birth = Birth(
            label=0,
            label_kind="birth",
            event=event,
            kind=kind,
            element=element,
            causes=made_from,
            cause_links=self.causes.links(node, inputs, subject.index, kind, operands),
        )
        module = self.places.place_of(node, name).module
        if module:
            birth.modules[module] = None
        self.nearby.begin(birth, ordinal, subject.way)
        set_id = self.labels.add(birth)
        group.append(set_id)
        return set_id

    # -- what comes in, and what the model writes ----------------------------------------------------------------

    def enter(self, name: str, kind: str, tensor: Tensor, node: Node | None, ordinal: int) -> Mark:
        """The labels of a value that no node wrote, at its first reader: NaN has entered, Inf is a literal.

        So is a NaN that is a single number of the model's own: a constant.
        """
        bad, nan = bad_mask(tensor), nan_mask(tensor)
        plane = np.zeros(tensor.shape, dtype=np.int32)
        for mask, is_nan in ((nan, True), (bad & ~nan, False)):
            if not mask.any():
                continue
            literal = not is_nan or (kind != "input" and tensor.size == 1)
            note = (
                Note.create("model_value", sort=kind, value_name=name)
                if kind
                else Note.create("unseen_value", value_name=name)
            )
            key = (name, kind, is_nan)
            set_id = self._entered.get(key)
            if set_id is None:
                event = self._reading(node, name, ordinal)
                set_id = self._entered[key] = self._add(note, tensor, mask, event, is_nan=is_nan, literal=literal)
            plane = np.where(mask, np.int32(set_id), plane)
        return Mark(compact(plane.astype(np.int32, copy=False)))

    def first_read(self, labels: frozenset[int], node: Node, name: str, ordinal: int) -> None:
        """A node is the first that reads a value that came in: there it stands."""
        for label in labels:
            birth = self.labels.birth(label)
            birth.event = self._reading(node, name, ordinal)
            birth.cause_links = tuple(
                link.model_copy(update={"site": birth.event.site, "node": birth.event.node})
                for link in birth.cause_links
            )

    def _reading(self, node: Node | None, name: str, ordinal: int) -> Event:
        if node is None:
            return Event(ordinal, None, "inference", None, value=name)
        reader = self.places.event(ordinal, node, next((o for o in node.outputs if o), ""))
        return replace(reader, op=None, value=name)

    def constant(self, node: Node, tensor: Tensor, mask: Mask, ordinal: int, output: int) -> int:
        """What a node writes without having computed it: a literal."""
        key = ("constant", level_of(node), node.index, output)
        set_id = self._entered.get(key)
        if set_id is None:
            event = self.places.event(ordinal, node, node.outputs[output])
            note = Note.create("written_by", operator=node.op)
            set_id = self._add(note, tensor, mask, event, is_nan=False, literal=True, linked=False)
            self._entered[key] = set_id
        else:
            self.labels.only(set_id).occurrences += 1
        return set_id

    def _add(
        self, note: Note, tensor: Tensor, mask: Mask, event: Event, *, is_nan: bool, literal: bool, linked: bool = True
    ) -> int:
        index = first_index(mask)
        assert index is not None
        element = element_of(tensor, mask, index, 0, ())
        link = ChainLink(
            role="cause",
            op=None,
            phase="inference",
            site=event.site,
            node=event.node,
            typed_summary=Note.create(
                "holds", origin=note, bad="NaN" if is_nan else infinity(element.value), index=element.index
            ),
        )
        birth = Birth(
            label=0,
            label_kind="literal" if literal else "birth",
            event=event,
            kind="literal" if literal else "entered",
            element=element,
            note=note,
            cause_links=(link,) if linked else (),
        )
        return self.labels.add(birth)

    def limit_masks(self, question: Question, born: Mask, output: Tensor) -> Mask | None:
        """Where what overflowed were masks written as the least number of a format. None if nowhere."""
        if question.node.op not in ONNX.having("spilling") or output.dtype.kind == "c":
            return None
        given = [
            v for v in question.inputs if v is not None and not isinstance(v, list) and v.dtype.kind not in "cbOUS"
        ]
        wide = (np.asarray(value).astype(np.float64) for value in given)
        return masks_of_limits(question, wide, born, output.astype(np.float64))

    def name_literals(self, carried: Plane, question: Question, output: Tensor, position: int) -> Plane:
        """Literals of which a node computed a NaN are named after it from here on."""
        node = question.node

        def derived(source: Birth, mask: Mask) -> Birth:
            index = first_index(mask)
            assert index is not None
            return Birth(
                label=0,
                label_kind="literal",
                event=self.places.event(question.ordinal, node, node.outputs[position]),
                kind="literal",
                element=element_of(output, mask, index, position, ()),
                causes=frozenset((source.label,)),
                note=source.note,
                named=True,
                computed=True,
            )

        return self._derived.rename(question, carried, nan_mask(output), (level_of(node), node.index), derived)


def split_births(born: Mask, output: Tensor) -> Iterator[tuple[Mask, int]]:
    """The born elements in parts that may have fates of their own, each with the count of its kind."""
    nan = born & nan_mask(output)
    for kind in (nan, born & ~nan):
        count = int(np.count_nonzero(kind))
        if 0 < count <= APART:
            for place in np.argwhere(kind):
                part = np.zeros_like(kind)
                part[tuple(place)] = True
                yield part, count
        elif count:
            yield kind, count


def writes_constants(node: Node) -> bool:
    """Whether a node's result is the model's own writing."""
    return node.op in ONNX.having("constant")
