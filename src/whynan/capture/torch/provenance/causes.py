"""What made the operand bad: from the decisive operand of a birth back to the event that explains its value."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from whynan.capture.provenance.chain import Dialect, Part, decisive_term, explain_event
from whynan.capture.provenance.dependence import broadcast_index, forward_index
from whynan.capture.torch.event_log import Held, Operands, Row, held_of
from whynan.capture.torch.provenance.operands import (
    decisive_operand,
    dtype_name,
    finite_range,
    from_list,
    locate,
    number,
    value_at,
)
from whynan.capture.torch.shadow_memory import is_whole
from whynan.capture.torch.sites import PHASES
from whynan.ops.table import TORCH
from whynan.records import ChainLink, ForwardOperand, Note, shown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import Question
    from whynan.records import BirthKind, Operand


class Factor(NamedTuple):
    """The row of an operand that a product ran over: the operand, its tensor and the row, a view of it."""

    held: Held
    tensor: Tensor
    row: Tensor


HOPS = 16
_LONGEST_ROW: Final = 1 << 16
"""A row of more zeros is explained by its first."""
EARLIER: Final = 4096
"""So many writes to one tensor are followed back for an element."""
_DIALECT: Final = Dialect(TORCH.having("transparent"), TORCH.having("clips"))
WEIGHING = {
    "nll_loss_forward": ("weight", "target"),
    "nll_loss2d_forward": ("weight", "target"),
    "_native_multi_head_attention": ("mask",),
}
"""By operator the operands that weigh others: what made them, first named first, explains a NaN."""


class Causes:
    """Walks the rows that are still held."""

    def __init__(self, context: TraceContext) -> None:
        self.context = context

    def links(
        self,
        row: Row,
        forward: Row | None,
        question: Question,
        operands: tuple[Operand, ...],
        place: tuple[int, ...] | None,
        kind: BirthKind,
    ) -> tuple[ChainLink, ...]:
        """The events that made the birth's decisive operand what it is, oldest first.

        Of a birth in backward: what made the operands of the forward operation.
        """
        if place is None:
            return ()
        if forward is not None:
            start = self._start_forward(forward, place, tuple(question.outputs[0].shape))
        else:
            start = self._start(row, question, operands, kind)
        if start is None:
            return ()
        links: list[ChainLink] = []
        held, index = start
        for _ in range(HOPS):
            if held is None:
                break
            link, held, index = self._whole(held) if index is None else self._explain_element(held, index)
            if link is not None:
                links.append(link)
        return tuple(reversed(links))

    def _start(
        self, row: Row, question: Question, operands: tuple[Operand, ...], kind: BirthKind
    ) -> tuple[Held | None, tuple[int, ...] | None] | None:
        chosen = _weighing(row, operands) or decisive_operand(row.operator.base, kind, operands)
        if chosen is None or chosen.name not in row.operator.arg_names:
            return None
        position = row.operator.arg_names.index(chosen.name)
        held = held_of(question.arguments[0], self.context.rows.writer_of)
        found = held[position] if position < len(held) else None
        return (found, chosen.index) if isinstance(found, Held) else None

    def _start_forward(
        self, forward: Row, place: tuple[int, ...], shape: tuple[int, ...]
    ) -> tuple[Held | None, tuple[int, ...] | None] | None:
        kept = self.context.rows.operands_at(forward.ordinal)
        if kept is None:
            return None
        seen: list[tuple[float, Held, tuple[int, ...]]] = []
        for operand in kept.held:
            if not isinstance(operand, Held):
                continue
            tensor = self.context.rows.value_of(operand)
            if tensor is None or not _is_aligned(forward, tensor, shape):
                continue
            index = _ahead(kept, tensor, place, shape)
            if index is None:
                continue
            value = value_at(tensor, index)
            if isinstance(value, (int, float)):
                seen.append((abs(float(value)), operand, index))
        if not seen:
            return None
        _, held, index = min(seen, key=lambda s: s[0])
        return held, index

    def _whole(self, held: Held) -> tuple[ChainLink | None, Held | None, tuple[int, ...] | None]:
        """A whole row or tensor as operand: name who wrote it, and stop."""
        row = self.context.rows.get(held.writer) if held.writer >= 0 else None
        if row is None:
            return self._outside(held, None), None, None
        value = self.context.rows.value_of(held)
        if value is None or value.numel() == 0:
            return None, None, None
        kept = self.context.rows.operands_at(row.ordinal)
        if kept is None or kept.out is None or math.prod(kept.out[0]) < value.numel():
            # it wrote a part only, and which part is not asked here
            return None, None, None
        low, high = finite_range(value)
        said = Note.create("made_range", operator=row.operator.base, low=shown(low), high=shown(high))
        return self._link(row, said), None, None

    def _explain_element(
        self, held: Held, index: tuple[int, ...]
    ) -> tuple[ChainLink | None, Held | None, tuple[int, ...] | None]:
        """One element as operand: the event that wrote it, in a sentence with its values, and where to look next."""
        row, kept, position = self._write_of(held, index)
        if row is None:
            return self._outside(held, index), None, None
        if kept is None or position is None:
            return self._link(row, self._last_write(row, held, index)), None, None
        value = self._value(held, index)
        if (
            row.operator.base in ("_softmax", "softmax")
            and (masked := self._masked(row, kept, position, value)) is not None
        ):
            return masked
        if row.operator.movement and (joined := from_list(row, kept.held, position)) is not None:
            return None, *joined
        parts: list[Part] = []
        factors: list[Factor] = []
        given = self._given(kept)
        for name, operand in zip(row.operator.arg_names, kept.held, strict=False):
            if isinstance(operand, Held):
                tensor = self._tensor(operand, kept)
                place, region = (None, None)
                if tensor is not None:
                    place, region = locate(row.operator, name, tensor, given, position)
                if tensor is None or (place is None and region is None):
                    parts.append(Part(holder=operand))
                elif place is not None:
                    parts.append(Part(value_at(tensor, place), None, operand, place))
                elif region is not None:
                    factors.append(Factor(operand, tensor, region))
                    start = _unravel(int(region.storage_offset()), tensor) if region.numel() else None
                    # an index is none of the values
                    is_value = region.is_floating_point() or not held.alias.dtype.is_floating_point
                    ends = finite_range(region) if is_value else None
                    start = self._zero_of_product(operand, tensor, region) or start if ends == (0, 0) else start
                    parts.append(Part(None, ends, operand, start))
            elif row.operator.pointwise and isinstance(operand, (int, float)) and not isinstance(operand, bool):
                parts.append(Part(operand))
        if row.operator.base in TORCH.having("product") and len(factors) == 2 and isinstance(value, (int, float)):
            return self._product(row, float(value), factors, parts, held.alias.dtype)
        return self._sentence(row, value, parts, held.alias.dtype)

    def _zero_of_product(self, operand: Held, tensor: Tensor, region: Tensor) -> tuple[int, ...] | None:
        """Of a row of zeros that were multiplied, the one that says most: a mask's own zeros explain no sum of 0."""
        row = self.context.rows.get(operand.writer) if operand.writer >= 0 else None
        kept = None if row is None else self.context.rows.operands_at(row.ordinal)
        if row is None or kept is None or row.operator.base.removesuffix("_") != "mul":
            return None
        held = [one for one in kept.held if isinstance(one, Held)]
        factors = [found for one in held if (found := self._tensor(one, kept)) is not None]
        if len(factors) != 2 or any(factor.is_complex() for factor in factors) or region.numel() > _LONGEST_ROW:
            return None
        # what was written may be a part of the tensor
        if kept.out is None or tuple(kept.out[0]) != tuple(tensor.shape) or not tensor.is_contiguous():
            return None
        begin = int(region.storage_offset() - tensor.storage_offset())
        steps = np.tensordot(region.stride(), np.indices(region.shape), 1) if region.dim() else np.zeros((), np.int64)
        places = begin + steps.reshape(-1)
        try:
            index = np.unravel_index(places, tensor.shape)
            rows = [factor.detach().expand(tensor.shape)[index].double().cpu().numpy() for factor in factors]
        except (RuntimeError, ValueError):
            # the row is none of the tensor
            return None
        of_numbers = [factor.is_floating_point() for factor in factors]
        computed = [is_number and self._computed(one) for is_number, one in zip(of_numbers, held, strict=True)]
        term = decisive_term(rows[0], rows[1], 0.0, (computed[0], computed[1]))
        return None if term is None else _unravel(int(places[term.place] + tensor.storage_offset()), tensor)

    def _write_of(
        self, held: Held, index: tuple[int, ...]
    ) -> tuple[Row | None, Operands | None, tuple[int, ...] | None]:
        """The event that wrote an element, its operands and the element's place in what it wrote.

        The last write to a tensor may be one to other elements of it: then it is an earlier one.
        """
        rows, writer = self.context.rows, held.writer
        last: Row | None = None
        for _ in range(EARLIER):
            row = rows.get(writer) if writer >= 0 else None
            last = row or last
            kept = None if row is None else rows.operands_at(row.ordinal)
            if row is None or kept is None or kept.out is None:
                return row, None, None
            position = _in_output(held, index, kept.out)
            changed = kept.held[0] if 0 in row.operator.mutable and kept.held else None
            if position is not None or not isinstance(changed, Held):
                return row, kept, position
            writer = changed.writer
        return last, None, None

    def _last_write(self, row: Row, held: Held, index: tuple[int, ...]) -> Note:
        """What the last event to write a tensor did to one of its elements, where no more is known of it."""
        value = self._value(held, index)
        if row.operator.base == "lift_fresh" and value is not None:
            place = index if is_whole(held.alias) else None
            name = self.context.sites.first_argument(row.site)
            written = self.context.sites.number_written(row.site, place) is not None
            if not written and (name is not None or held.alias.dim()):
                return Note.create("outside", sort="data", tensor=name, index=place, known=True, result=shown(value))
        if row.operator.mutable:
            return Note.create("wrote_last", operator=row.operator.base.removesuffix("_"))
        return describe_operation(row, value)

    def _masked(
        self, row: Row, kept: Operands, position: tuple[int, ...], value: Any
    ) -> tuple[ChainLink | None, Held | None, tuple[int, ...] | None] | None:
        """A logit of -Inf, whose softmax is 0 whatever else is in its row."""
        operand = next((o for o in kept.held if isinstance(o, Held)), None)
        tensor = None if operand is None else self._tensor(operand, kept)
        if tensor is None or value != 0 or len(position) != tensor.dim() or value_at(tensor, position) != -math.inf:
            return None
        return (
            self._link(row, Note.create("logit_of_infinity", operator=row.operator.base, result=shown(value))),
            operand,
            position,
        )

    def _product(
        self, row: Row, value: float, factors: list[Factor], parts: list[Part], dtype: torch.dtype
    ) -> tuple[ChainLink | None, Held | None, tuple[int, ...] | None]:
        """A sum of products: its greatest term, or what is added to it where that is greater."""
        added = next((abs(p.number) for p in parts if p.number is not None and p.place is not None), 0.0)
        first, second = factors
        computed = (self._computed(first.held), self._computed(second.held))
        term = None
        if first.row.is_floating_point():
            rows = [factor.row.detach().double().cpu().numpy() for factor in factors]
            term = decisive_term(rows[0], rows[1], value, computed)
        if term is None or added > abs(term.factors[0] * term.factors[1]):
            return self._sentence(row, value, parts, dtype)
        chosen = factors[term.side]
        address = int(chosen.row.storage_offset()) + term.place * int(chosen.row.stride(0))
        return self._link(row, term.said(value)), chosen.held, _unravel(address, chosen.tensor)

    def _computed(self, held: Held) -> bool:
        """Whether an operand was computed in this trace, by more than a constant."""
        row = self.context.rows.get(held.writer) if held.writer >= 0 else None
        return row is not None and row.operator.base.removesuffix("_") not in TORCH.having("constant")

    def _sentence(
        self, row: Row, value: Any, parts: list[Part], dtype: torch.dtype
    ) -> tuple[ChainLink | None, Held | None, tuple[int, ...] | None]:
        plain = row.operator.base.removesuffix("_")
        if plain in TORCH.having("constant", "random") or (value is None and plain not in TORCH.having("transparent")):
            return self._link(row, describe_operation(row, value)), None, None
        said, part = explain_event(_DIALECT, plain, value, parts, dtype_name(dtype))
        link = None if said is None else self._link(row, said)
        return (link, None, None) if part is None else (link, part.holder, part.place)

    def _given(self, kept: Operands) -> list[Any]:
        """What an operator was given; as it is held where a tensor of that, as an index, is not known any more."""
        known = True

        def given(operand: Any) -> Any:
            nonlocal known
            if isinstance(operand, Held):
                tensor = self._tensor(operand, kept)
                known = known and tensor is not None
                return tensor
            return [given(one) for one in operand] if isinstance(operand, list) else operand

        found = [given(operand) for operand in kept.held]
        return found if known else kept.held

    def _tensor(self, operand: Held, kept: Operands) -> Tensor | None:
        if kept.before is not None and kept.held and kept.held[0] is operand:
            return kept.before
        return self.context.rows.value_of(operand)

    def _value(self, held: Held, index: tuple[int, ...]) -> Any:
        tensor = self.context.rows.value_of(held)
        return value_at(tensor, index) if tensor is not None else None

    def _outside(self, held: Held, index: tuple[int, ...] | None) -> ChainLink | None:
        tensor = self.context.rows.value_of(held)
        if tensor is None:
            return None
        name, kind = self.context.names.describe(tensor)
        if name is None:
            return None
        value = None if index is None else shown(value_at(tensor, index))
        said = Note.create("outside", sort=kind, tensor=name, index=index, known=index is not None, result=value)
        phase = "data" if kind == "argument" else None
        return ChainLink(role="cause", op=None, phase=phase, site=None, typed_summary=said)

    def _link(self, row: Row, said: Note) -> ChainLink:
        site, _ = self.context.sites.resolve(row.site, self.context.names.module_path(row.module))
        return ChainLink(role="cause", op=row.operator.name, phase=PHASES[row.phase], site=site, typed_summary=said)

    def forward_operands(
        self, row: Row, place: tuple[int, ...] | None, shape: tuple[int, ...]
    ) -> tuple[ForwardOperand, ...]:
        """The operands of a forward event at the element whose gradient went bad."""
        kept = self.context.rows.operands_at(row.ordinal)
        if kept is None and row.phase != 0:
            # the operands of a backward are not held for a second one
            return ()
        if kept is None:
            return tuple(
                ForwardOperand(name=n) for n in row.operator.arg_names[:2] if n not in ("dim", "dtype", "alpha")
            )
        found: list[ForwardOperand] = []
        for name, operand in zip(row.operator.arg_names, kept.held, strict=False):
            if isinstance(operand, Held):
                tensor = self._tensor(operand, kept)
                if tensor is None:
                    found.append(ForwardOperand(name=name))
                    continue
                index: tuple[int, ...] | None = None
                if place is not None and _is_aligned(row, tensor, shape):
                    index = _ahead(kept, tensor, place, shape)
                if tensor.numel() == 1:
                    index = (0,) * tensor.dim()
                found.append(
                    ForwardOperand(
                        name=name,
                        index=index,
                        value=None if index is None else value_at(tensor, index),
                        dtype=dtype_name(tensor.dtype),
                        origin="window",
                    )
                )
            elif isinstance(operand, (int, float)) and not isinstance(operand, bool) and name not in ("dim", "alpha"):
                found.append(ForwardOperand(name=name, value=number(operand), origin="live"))
        return tuple(found)


def describe_operation(row: Row, value: Any) -> Note:
    """What an event did to an element whose operands are gone."""
    plain = row.operator.base.removesuffix("_")
    if value is None:
        return Note.create("wrote_last", operator=plain)
    if plain in TORCH.having("constant"):
        return Note.create("program_writes", result=shown(value))
    return Note.create("drew" if plain in TORCH.having("random") else "made", operator=plain, result=shown(value))


def _is_aligned(row: Row, tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether the elements of an operand answer to those of its event's result by position, and so to its gradient."""
    return row.operator.pointwise or (tuple(tensor.shape) == shape and row.operator.base not in TORCH.having("product"))


def _ahead(kept: Operands, tensor: Tensor, place: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The element of an operand that one of the gradient, which has this shape, is about."""
    if tuple(tensor.shape) == shape or len(place) != len(shape):
        return broadcast_index(tensor.shape, place)
    out = kept.out[0] if kept.out is not None else tensor.shape
    sizes = zip(reversed(tensor.shape), reversed(shape), strict=False)
    if len(shape) == len(out) and any(size not in (1, other) for size, other in sizes):
        # one of a sum over what the operand has several of
        return None
    ahead = forward_index(out, place, shape)
    return None if ahead is None else broadcast_index(tensor.shape, ahead)


def _weighing(row: Row, operands: tuple[Operand, ...]) -> Operand | None:
    """Of a result that is NaN without a bad score: what weighs the scores, or chooses among them."""
    scores = next((o for o in operands if o.name == "self"), None)
    if scores is not None and any(v is None or v - v != 0 for v in (scores.min, scores.max)):
        return None
    found = {o.name: o for o in operands if o.dtype is not None}
    return next((found[name] for name in WEIGHING.get(row.operator.base, ()) if name in found), None)


def _in_output(held: Held, index: tuple[int, ...], out: tuple[Any, Any, int]) -> tuple[int, ...] | None:
    """The index in the writer's output of an element seen through a view of it."""
    shape, stride, offset = out
    seen = held.alias
    address = seen.storage_offset() + sum(i * s for i, s in zip(index, seen.stride(), strict=True)) - offset
    return _index_at(int(address), shape, stride)


def _unravel(address: int, tensor: Tensor) -> tuple[int, ...] | None:
    """The index of the element of a tensor that lies at a place of its storage."""
    return _index_at(address - int(tensor.storage_offset()), tensor.shape, tensor.stride())


def _index_at(address: int, shape: Any, stride: Any) -> tuple[int, ...] | None:
    if address < 0:
        return None
    order = sorted(range(len(shape)), key=lambda d: -stride[d])
    result = [0] * len(shape)
    for d in order:
        if stride[d] == 0 or shape[d] == 1:
            continue
        result[d], address = divmod(address, stride[d])
        if result[d] >= shape[d]:
            return None
    return tuple(result) if address == 0 else None
