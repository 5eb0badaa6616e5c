"""Entries: bad values that no traced operation bore: inputs, literals, PyTorch's own out-of-domain NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from whynan.capture.provenance.births import NamedLiterals, masks_of_limits
from whynan.capture.torch import shadow_memory
from whynan.capture.torch.event_log import Held
from whynan.capture.torch.provenance.attribution import scalars
from whynan.capture.torch.provenance.before_the_run import find_computation
from whynan.capture.torch.provenance.operands import (
    dtype_name,
    element_of,
    finite_range,
    first_index,
    in_whole,
    value_at,
)
from whynan.capture.torch.shadow_memory import bad_mask, nan_mask, store
from whynan.floats import infinity
from whynan.ops.spelling import spells_nonfinite
from whynan.ops.table import TORCH
from whynan.records import ChainLink, Note, Operand
from whynan.source.syntax import lines_of, method_of
from whynan.traces import Birth, Event

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.provenance.attribution import Verdict
    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import Row
    from whynan.capture.torch.interposition.collectives import CollectiveLog
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.provenance import interventions
    from whynan.capture.torch.provenance.attribution import Question
    from whynan.capture.torch.provenance.before_the_run import Inherited
    from whynan.capture.torch.provenance.labels import Labels
    from whynan.capture.torch.provenance.origins import Origins
    from whynan.records import Element


# -- Bad values that no traced operation bore: what enters, what the program writes, what Python hands back ------------


"""Of what was bad where a replay begins, and is neither a weight nor known to be data."""


class Entries:
    """Literals and what has entered, each place once."""

    def __init__(self, context: TraceContext, origins: Origins, exchanges: CollectiveLog) -> None:
        self.context = context
        self.origins = origins
        self.exchanges = exchanges
        self.read_nan = 0
        """The labels of the NaN that Python was last given."""
        self.known: dict[Any, int] = {}
        self.groups: dict[Any, list[int]] = {}
        self.derived = NamedLiterals(context.labels)
        self.inherited: Inherited | None = None
        """What a replay begins with."""
        self.ahead: str | None = None
        """Where a replay begins that leaves out a part of what the step does ahead of it."""

    def enter(self, tensor: Tensor, holder: Tensor, unknown: Tensor, plane: Tensor, site: int, event: Event) -> Tensor:
        """Label bad elements that no traced event wrote: NaN has entered, Inf is a literal, garbage uninitialised.

        `holder` is the tensor whose storage keeps the labels; `tensor` its content when it was read.
        """
        context = self.context
        name, kind, whole = context.names.describe_with_base(holder)
        since: Note | None = None
        if self.inherited is not None:
            name, kind, since = self.inherited.describe(holder, name, kind, context.names)
        state = context.state_of(holder)
        uninitialised = state is not None and state.uninitialised
        nan = nan_mask(tensor) & unknown
        made = self.exchanges.writer_of(holder, event.ordinal + context.first)
        exchanged = self.exchanges.collective_of(made)
        if exchanged and made is not None:
            uninitialised, since = False, Note.create("left_by_processes", operation=str(exchanged))
            if sent := self.exchanges.sent_labels(made):
                return self._keep(holder, torch.where(unknown, sent, plane).to(torch.int32))
            self.exchanges.note_received(made, holder)
        constant = made if made is not None and made.operator.base == "lift_fresh" else None
        for mask, is_nan in ((nan, True), (unknown & ~nan, False)):
            if not bool(mask.any()):
                continue
            # a Python number, wrapped: x[0] = nan
            number = name is None and tensor.dim() == 0 and made is None and not self.origins.knows(holder)
            if is_nan and number and self.read_nan:
                plane = torch.where(mask, self.read_nan, plane).to(torch.int32)
                continue
            written = number or (constant is not None and self._writes_it(constant, site))
            beyond = None if is_nan or written or constant is None else self._beyond(constant, tensor, mask)
            literal = not uninitialised and not exchanged and (not is_nan or kind == "buffer" or written)
            literal = literal and beyond is None
            key: Any = id(holder.untyped_storage()) if name is None else name
            key = (key, kind, is_nan, literal, site, context.scope)
            if exchanged:
                # what others have put in comes in all that this gives
                key = (exchanged, is_nan, context.scope)
            set_id = self.known.get(key)
            if set_id is None:
                inexact = constant is not None and not (is_nan or written or kind or exchanged or uninitialised)
                note = Note.create(
                    "entered",
                    sort=kind,
                    tensor=name,
                    literal=bool(written),
                    dtype=dtype_name(tensor.dtype) if inexact else None,
                    since=since if is_nan or not literal or kind == "parameter" else None,
                )
                if uninitialised:
                    note = Note.create("uninitialised")
                data = self.origins.data_of(holder, mask)
                if self.ahead is not None and data is None and name is None and constant is None and is_nan:
                    note = Note.create("ahead", place=self.ahead)
                element = element_of(tensor, mask, 0, None, () if beyond is None else (beyond,), name)
                if whole is not None and whole is not holder:
                    named = shadow_memory.is_plain(whole)
                    element = _element_in(whole, holder, mask, element) if named else in_whole(element, holder, whole)
                row = made if exchanged else constant if literal else None
                if beyond is None or constant is None:
                    birth = self._birth(note, element, event, row, is_nan=is_nan, literal=literal)
                else:
                    birth = Birth(0, "birth", self._event_of(constant), "overflow", element, scope=self.context.scope)
                birth.data = data
                if birth.data is None and constant is not None and not written and beyond is None:
                    birth.data = self.origins.value_at(constant.site)
                self._computed(birth, constant, tensor)
                set_id = self.known[key] = context.labels.add(birth)
            else:
                self._again(set_id)
            plane = torch.where(mask, set_id, plane).to(torch.int32)
        return self._keep(holder, plane)

    def _computed(self, birth: Birth, constant: Row | None, tensor: Tensor) -> None:
        """Say of what was converted which line of the program computed it."""
        data = birth.data
        if constant is None or data is None or data.kind not in ("numpy", "value"):
            return
        # the index in what was converted: a view of it has others
        index = (
            birth.element.index
            if shadow_memory.is_whole(tensor) and birth.element.shape == tuple(tensor.shape)
            else None
        )
        found = find_computation(self.context.sites, constant.site, birth.element, index)
        if found is not None:
            birth.data = data.model_copy(update={"computed": found.site})
            birth.cause_links = (found.link, *birth.cause_links)

    def _keep(self, holder: Tensor, plane: Tensor) -> Tensor:
        where = self.context.mark(holder)
        where.reads += 1
        found = self.context.labels.present(plane)
        store(where, holder, plane, found[0] if len(found) == 1 else 0)
        return plane

    def enter_parameter(self, parameter: Tensor, site: int) -> None:
        """A parameter that is bad before its first step: from outside, not by the optimizer."""
        tensor = parameter.detach()
        user, library = self.context.sites.resolve(site, None)
        event = Event(self.context.events, None, "optimizer", user, library)
        mask = bad_mask(tensor)
        self.enter(
            tensor, parameter, mask, torch.zeros(tensor.shape, dtype=torch.int32, device=tensor.device), site, event
        )

    def enter_unread(self, tensor: Tensor, bad: Tensor, site: int) -> Tensor:
        """What leaves as it came in, read by no event."""
        user, library = self.context.sites.resolve(site, None)
        event = Event(self.context.events, None, "forward", user, library)
        empty = torch.zeros(tensor.shape, dtype=torch.int32, device=tensor.device)
        return self.enter(tensor.detach(), tensor, bad, empty, site, event)

    def _writes_it(self, row: Row, reader: int) -> bool:
        """Whether the expression that made a constant spells a NaN or an Inf; data given to `tensor` does not."""
        site, _ = self.context.sites.resolve(row.site, None)
        if site is None:
            return False
        text = site.code or ""
        if row.site == reader:
            # x[0] = float("nan"): the expression is the target, and the value stands beside it
            text = "".join(lines_of(site.file)[site.line - 1 : site.line])
        return spells_nonfinite(text)

    def _beyond(self, constant: Row, tensor: Tensor, mask: Tensor) -> Operand | None:
        """The finite number that the source writes for the first of the elements that are Inf in their dtype."""
        index = first_index(mask) if shadow_memory.is_whole(tensor) else None
        number = None if index is None else self.context.sites.number_written(constant.site, index)
        if number is None or not math.isfinite(number):
            return None
        if bool(torch.isfinite(torch.tensor(number, dtype=tensor.dtype, device="cpu"))):
            return None
        return Operand(
            name="data", expression=self.context.sites.first_argument(constant.site), value=number, origin="live"
        )

    def _event_of(self, row: Row) -> Event:
        site, library = self.context.sites.resolve(row.site, None)
        phase = "collective" if row.operator.collective else "forward"
        return Event(row.ordinal - self.context.first, row.operator.name, phase, site, library)

    def _birth(self, note: Note, element: Any, event: Event, row: Row | None, *, is_nan: bool, literal: bool) -> Birth:
        cause = event
        if row is not None:
            cause = self._event_of(row)
        if literal and row is not None:
            event = cause
        elif not literal:
            event = Event(
                event.ordinal, None, event.phase, event.site, event.library_site, step=event.step, micro=event.micro
            )
        link = ChainLink(
            role="cause",
            op=cause.op if row is not None and row.operator.collective else None,
            phase=cause.phase,
            site=cause.site,
            typed_summary=Note.create(
                "holds", origin=note, bad="NaN" if is_nan else infinity(element.value), index=element.index
            ),
        )
        return Birth(
            label=0,
            label_kind="literal" if literal else "birth",
            event=event,
            kind="literal" if literal else "entered",
            element=element,
            note=note,
            cause_links=(link,),
            scope=self.context.scope,
        )

    def _again(self, set_id: int) -> None:
        for label in self.context.labels.sets[set_id]:
            self.context.labels.birth(label).occurrences += 1

    def record_python_nan(self, labels: int) -> None:
        """Python was given a NaN with these labels; 0 for none that is known."""
        self.read_nan = labels or self.read_nan

    def returned_nan(self, arguments: interventions.Arguments) -> int:
        """A NaN that Python hands in after a tensor had given it one: the same, come back."""
        if any(v != v for v in scalars(arguments)):
            return self.read_nan
        return 0

    def add_literal(self, row: Row, event: Event, operator: Operator, output: Tensor, note: Note | None = None) -> int:
        """A constant that the program writes, each place once."""
        key = self._key(row, operator)
        found = self.groups.get(key)
        if found:
            self.context.labels.only(found[0]).occurrences += 1
            return found[0]
        element = element_of(output, bad_mask(output), 0, None, (), None)
        birth = Birth(
            label=0,
            label_kind="literal",
            event=event,
            kind="literal",
            element=element,
            note=note or _constant(event, operator),
            scope=self.context.scope,
        )
        set_id = self.context.labels.add(birth)
        self.groups[key] = [set_id]
        return set_id

    def is_literal(self, row: Row) -> bool:
        """Whether an event was given a constant that the program writes."""
        return self._key(row, row.operator) in self.groups

    def _key(self, row: Row, operator: Operator) -> object:
        return "literal", self.context.sites.key(row.site), operator.name, self.context.scope

    def name_literals(self, carried: Tensor, question: Question, event: Event, output: Tensor) -> Tensor:
        """Literals that pass a first reduction, selection or computation are named after it from here on."""

        def derived(source: Birth, mask: Tensor) -> Birth:
            element = element_of(output, mask, 0, None, (), None)
            # what gives some operand's value again leaves a NaN the one that was written
            is_nan = element.value is not None and element.value != element.value
            return Birth(
                label=0,
                label_kind="literal",
                event=event,
                kind="literal",
                element=element,
                causes=frozenset((source.label,)),
                note=source.note,
                data=source.data,
                named=True,
                computed=is_nan and not question.operator.copying,
                scope=self.context.scope,
            )

        everywhere = torch.ones(output.shape, dtype=torch.bool, device=output.device)
        return self.derived.rename(question, carried, everywhere, question.row.site, derived)


def _element_in(whole: Tensor, view: Tensor, mask: Tensor, element: Element) -> Element:
    """The element as one of the named tensor that it was read through a view of."""
    index = shadow_memory.first_index_in(whole, view, mask)
    if index is None:
        return element
    shape = tuple(int(s) for s in whole.shape)
    return element.model_copy(
        update={"index": index, "shape": shape, "total": whole.numel(), "value": value_at(whole.detach(), index)}
    )


def _constant(event: Event, operator: Operator) -> Note:
    """Who writes a constant: the program by an operation, or a distribution of PyTorch's where it has no density."""
    called = None if event.site is None else method_of(event.site.code or "")
    return Note.create("outside_support") if called == "log_prob" else Note.create("written_by", operator=operator.base)


def limit_masks(question: Question, born: Tensor, output: Tensor) -> Tensor | None:
    """Where what overflowed were masks written as the least number of a format. None if nowhere."""
    if question.operator.base not in TORCH.having("spilling") or output.is_complex():
        return None
    given = [v for v in question.arguments[0][:2] if isinstance(v, torch.Tensor) and id(v) not in question.gone]
    wide = (v.detach().double() for v in given if v.is_floating_point())
    return masks_of_limits(question, wide, born, shadow_memory.computable(output))


# -- A NaN that PyTorch itself writes outside of an operation's domain: no constant of the program's, but a birth ------
#
# `torch.logdet` is made of a factorisation, a comparison of the determinant's sign, and a choice of NaN where it is
# negative. All of it is one call of the program's.


class Determinant(NamedTuple):
    """The factorisation behind a choice by the sign of a determinant: its event, its matrices, and the signs."""

    row: Row
    matrix: Tensor | None
    sign: Tensor | None

    def operands(self, place: tuple[int, ...]) -> tuple[Operand, ...]:
        """The matrix of one element, and the sign of its determinant."""
        found: list[Operand] = []
        if self.matrix is not None and self.matrix.dim() == len(place) + 2:
            low, high = finite_range(self.matrix[place])
            shape = tuple(int(s) for s in self.matrix.shape)
            dtype = dtype_name(self.matrix.dtype)
            found.append(Operand(name="A", dtype=dtype, shape=shape, min=low, max=high, value=high, origin="window"))
        if self.sign is not None and self.sign.dim() == len(place):
            dtype = dtype_name(self.sign.dtype)
            found.append(
                Operand(
                    name="sign", index=place, value=value_at(self.sign, place), dtype=dtype, shape=(), origin="window"
                )
            )
        return tuple(found)


def determinant_of(context: TraceContext, row: Row, args: Any) -> Determinant | None:
    """The factorisation that a `where` chooses by, if both are of one call."""
    if row.operator.base != "where" or len(args) != 3 or not isinstance(args[0], torch.Tensor):
        return None
    test = context.rows.get(context.rows.writer_of(args[0]))
    sign = _first(context, test) if test is not None and test.site == row.site and test.operator.base == "eq" else None
    made = None if sign is None else context.rows.get(sign.writer)
    if sign is None or made is None or made.site != row.site or made.operator.base != "_linalg_slogdet":
        return None
    matrix = _first(context, made)
    return Determinant(made, None if matrix is None else context.rows.value_of(matrix), context.rows.value_of(sign))


def _first(context: TraceContext, row: Row) -> Held | None:
    kept = context.rows.operands_at(row.ordinal)
    first = kept.held[0] if kept is not None and kept.held else None
    return first if isinstance(first, Held) else None


def treat_constants_as_born(verdict: Verdict, output: Tensor, labels: Labels) -> Verdict:
    """The verdict with every NaN constant that was chosen as born there."""
    chosen = torch.zeros_like(verdict.born)
    for set_id in labels.present(verdict.carried):
        if labels.is_literal(set_id):
            chosen |= (verdict.carried == set_id) & nan_mask(output)
    verdict.carried = torch.where(chosen, 0, verdict.carried)
    verdict.born = verdict.born | chosen
    return verdict
