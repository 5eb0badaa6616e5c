"""Where an element of a forward result is left out, in every way that it went: by `where`, a fill, a mask, an index.

What was left out has no part in the loss, and its derivative is computed all the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.provenance.dependence import broadcast_index, forward_index
from whynan.capture.torch.event_log import Held, Operands, address
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.provenance.operands import with_slices
from whynan.ops.table import TORCH
from whynan.records import Selection

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import Row
    from whynan.capture.torch.operators import Operator

_MOST: Final = 1 << 20
"""Elements of a tensor in which an element is looked for."""
_WAYS: Final = 64
"""So many results are followed that hold the element or were computed from it."""


class _Way(NamedTuple):
    """Where in a storage the element is, and where what was computed from it is: one bool for each element of it."""

    place: Tensor

    def through(self, seen: Tensor) -> Tensor:
        """The places in a tensor that shows the storage, of which what was written may be a part."""
        shape, stride, offset = seen.shape, seen.stride(), int(seen.storage_offset())
        missing = _end(shape, stride, offset) - self.place.numel()
        place = torch.nn.functional.pad(self.place, (0, missing)) if missing > 0 else self.place
        return torch.as_strided(place, shape, stride, offset)


class _Event(NamedTuple):
    """An event that reads what is followed: its row, its operands, and the values that they had."""

    row: Row
    kept: Operands
    value_of: Callable[[Held], Tensor | None]
    operator_of: Callable[[int], Operator | None]

    @property
    def base(self) -> str:
        return self.row.operator.base if self.row.operator.base.startswith("_") else self.row.operator.base.rstrip("_")

    def given(self, name: str) -> Any:
        """An operand by its name: a tensor with its values, or a number; None where it is not known."""
        names = self.row.operator.arg_names
        position = names.index(name) if name in names else len(names)
        found = self.kept.held[position] if position < len(self.kept.held) else (self.kept.named or {}).get(name)
        return self.tensor(found) if isinstance(found, Held) else found

    def tensor(self, held: Held) -> Tensor | None:
        """The values of an operand when the event ran, on the host, where the places are followed."""
        written_over = self.kept.before is not None and self.kept.held and self.kept.held[0] is held
        value = self.kept.before if written_over else self.value_of(held)
        return None if value is None else value.cpu()

    def writes_masks(self, held: Held) -> bool:
        """Whether an operand came from outside, or was made of numbers that were only moved, chosen or written."""
        operator = self.operator_of(held.writer)
        return operator is None or operator.copying or operator.base in ("rsub", "sub")


class Selections:
    """Follows an element through the events of the window."""

    def __init__(self, context: TraceContext, later: int) -> None:
        self._context = context
        self._later = later

    def exclusion_of_gradient(
        self, forward: Row, place: tuple[int, ...] | None, shape: tuple[int, ...], *, idle: bool
    ) -> Selection | None:
        """What leaves out the element of a forward result at the place where its gradient, of this shape, went bad.

        `idle`: its gradient is known to be 0, so that whatever else has read it does not count.
        """
        kept = self._context.rows.operands_at(forward.ordinal)
        index = None if kept is None or place is None else _index(forward, kept, place, shape)
        return None if index is None else self.exclusion_of_result(forward, index, idle=idle)

    def exclusion_of_result(self, forward: Row, index: tuple[int | slice, ...], *, idle: bool) -> Selection | None:
        """What leaves out this element, or row, of a forward result."""
        kept = self._context.rows.operands_at(forward.ordinal)
        if kept is None or kept.out is None:
            return None
        try:
            with interventions.no_trace():
                found = self._follow(forward, kept, kept.out, index, idle=idle)
        except interventions.ANSWERLESS:
            return None
        return None if found is None else self._told(*found)

    def _follow(
        self, forward: Row, kept: Operands, out: tuple[Any, Any, int], index: tuple[int | slice, ...], *, idle: bool
    ) -> tuple[_Event | None, str] | None:
        ways = {forward.ordinal: _Way(_only(out, index))}
        operands = {address(h.alias) for h in kept.held if isinstance(h, Held)}
        left_out: tuple[_Event | None, str] | None = None
        unread, kept_of, cut_from = {forward.ordinal}, set[int | None](), None
        for ordinal in range(forward.ordinal + 1, min(forward.ordinal + self._later, self._context.ordinal)):
            event = self._event(ordinal, ways)
            if event is None or event.row.operator.view:
                continue
            for name, held in _tensors(event):
                if held.writer not in ways:
                    continue
                unread.discard(held.writer)
                if event.base in TORCH.having("no-gradient") or event.row.operator.value_free:
                    continue
                read = ways[held.writer].through(held.alias)
                kept_on = _kept(event, name, held, read, operands) if bool(read.any()) else read
                if kept_on is None:
                    if idle:
                        continue
                    return None
                if not bool(kept_on.any()):
                    is_cut = not bool(read.any())
                    cut_from = held.writer if is_cut and left_out is None else cut_from
                    # of several ways the one that a mask ends says more than one that a clamp does
                    if left_out is None or (not (_chooses(left_out[0]) or is_cut) and _chooses(event)):
                        left_out = None if is_cut else event, name
                    continue
                kept_of.add(held.writer)
                if len(ways) >= _WAYS or event.kept.out is None:
                    return None
                _join(ways, ordinal, event.kept.out, kept_on)
                unread.add(ordinal)
        if left_out is not None and left_out[0] is None and cut_from in kept_of:
            # another slice of the same has it
            return None
        return left_out if idle or not unread else None

    def _event(self, ordinal: int, ways: dict[int, _Way]) -> _Event | None:
        raw = self._context.rows.operands.get(ordinal)
        if raw is None or not any(_reads(value, ways) for value in raw[0]):
            return None
        row, kept = self._context.rows.get(ordinal), self._context.rows.operands_at(ordinal)
        if row is None or kept is None or row.phase != 0:
            return None
        return _Event(row, kept, self._context.rows.value_of, self._operator)

    def _operator(self, ordinal: int) -> Operator | None:
        row = self._context.rows.get(ordinal)
        return None if row is None else row.operator

    def _told(self, event: _Event | None, side: str) -> Selection:
        if event is None:
            # the window has no views: which it was, and where, is not known
            return Selection(op="aten.slice.Tensor", side="self")
        by = TORCH.column("chooser").get(event.base, "")
        row = event.row
        names = row.operator.arg_names
        written = self._context.sites.expressions(row.site, row.operator.name, names, ())
        mask = written.get(("other" if side == "self" else "self") if by == "either" else by)
        site, _ = self._context.sites.resolve(row.site, None)
        line, function = (None, None) if site is None else (site.line, site.function)
        return Selection(op=row.operator.name, side=side, mask=mask, line=line, function=function)


def _chooses(event: _Event | None) -> bool:
    """Whether an operand of an event says which elements it keeps; None is a slice, which says nothing more."""
    return event is None or event.base in TORCH.column("chooser")


def _index(row: Row, kept: Operands, place: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int | slice, ...] | None:
    """The element of a result whose derivative is at a place of a gradient, or the row of it that depends on it."""
    out = () if kept.out is None else kept.out[0]
    if math.prod(out) == 1:
        return (0,) * len(out)
    rows = row.operator.base in TORCH.having("row") and len(kept.held) > 1 and isinstance(kept.held[1], int)
    reduced = row.operator.base in TORCH.having("reduction") and len(out) == len(place)
    if row.operator.pointwise or rows or reduced:
        ahead = forward_index(out, place, shape)
        index = None if ahead is None else broadcast_index(out, ahead)
    else:
        index = None
    return with_slices(index, [kept.held[1]], len(out)) if rows and index is not None else index


def _end(shape: Any, stride: Any, offset: int) -> int:
    """The end of what a layout shows of a storage; raises ``IndexError`` where that is too far."""
    end = offset + 1 + sum((int(n) - 1) * int(s) for n, s in zip(shape, stride, strict=True))
    if end > _MOST:
        raise IndexError(end)
    return end


def _only(out: tuple[Any, Any, int], index: tuple[int | slice, ...] | None) -> Tensor:
    """Of a storage that a layout shows, the places of an element or row; None of them without an index."""
    shape, stride, offset = out
    place = torch.zeros(_end(shape, stride, offset), dtype=torch.bool, device="cpu")
    if index is not None:
        torch.as_strided(place, tuple(shape), tuple(stride), offset)[index] = True
    return place


def _join(ways: dict[int, _Way], ordinal: int, out: tuple[Any, Any, int], read: Tensor) -> None:
    shape, stride, offset = out
    if read.shape != tuple(shape):
        raise IndexError(read.shape)
    known = ways.get(ordinal)
    place = _only(out, None) if known is None else known.place
    torch.as_strided(place, tuple(shape), tuple(stride), offset).logical_or_(read)
    ways[ordinal] = _Way(place)


def _reads(value: Any, ways: dict[int, _Way]) -> bool:
    """Whether an operand as the window keeps it was written by what is followed."""
    if type(value) is list:
        return any(_reads(v, ways) for v in value)  # pyright: ignore[reportUnknownVariableType]
    return type(value) is tuple and len(value) == 2 and value[1] in ways


def _tensors(event: _Event) -> list[tuple[str, Held]]:
    """The tensors among the operands, those of lists too."""
    names = event.row.operator.arg_names
    found: list[tuple[str, Held]] = []
    for name, value in zip(names, event.kept.held, strict=False):
        found += [(name, h) for h in (value if isinstance(value, list) else [value]) if isinstance(h, Held)]
    return found


# -- what an event passes on ---------------------------------------------------------------------------------------


def _kept(event: _Event, name: str, held: Held, read: Tensor, operands: set[int]) -> Tensor | None:
    """The places of the output that are computed from places of an operand; None where that is not known."""
    operator = event.row.operator
    passes = _PASSES.get(event.base)
    if passes is not None:
        return passes(event, name, held, read, operands)
    if event.base in ("fill", "zero", "copy") and name == "self" and operator.mutable:
        return torch.zeros_like(read)
    if operator.movement:
        return _moved(event, held, read)
    shape = None if event.kept.out is None else tuple(event.kept.out[0])
    return read.expand(shape) if operator.pointwise and not operator.foreach and shape is not None else None


def _moved(event: _Event, held: Held, read: Tensor) -> Tensor | None:
    """A moving operator moves the places."""

    def marked(value: Any) -> Any:
        if isinstance(value, list):
            return [marked(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(value, Held):
            return value
        if value is held:
            return read
        tensor = event.tensor(value)
        if tensor is None:
            raise IndexError
        return tensor if tensor.dtype in (torch.bool, torch.int64, torch.int32) else torch.zeros_like(tensor).bool()

    operator: Operator = event.row.operator
    moved = operator.func(*[marked(v) for v in event.kept.held], **(event.kept.named or {}))
    return moved if isinstance(moved, torch.Tensor) and moved.dtype is torch.bool else None


def _where(event: _Event, name: str, _held: Held, read: Tensor, _operands: set[int]) -> Tensor | None:
    condition = event.given("condition")
    if name == "condition":
        return torch.zeros_like(read)
    if not isinstance(condition, torch.Tensor):
        return None
    return read & (condition if name == "self" else ~condition)


def _filled(event: _Event, name: str, _held: Held, read: Tensor, _operands: set[int]) -> Tensor | None:
    mask = event.given("mask")
    return read & ~mask if name == "self" and isinstance(mask, torch.Tensor) else None


def _put(event: _Event, name: str, _held: Held, read: Tensor, _operands: set[int]) -> Tensor | None:
    if name != "self" or event.given("accumulate"):
        return None
    indices: list[Any] = [event.tensor(h) for h in event.kept.held[1] if isinstance(h, Held)]
    if len(indices) != len(event.kept.held[1]) or any(i is None for i in indices):
        return None
    return torch.index_put(read, indices, torch.tensor(False, device="cpu"))


def _without_bad(_event: _Event, _name: str, held: Held, read: Tensor, _operands: set[int]) -> Tensor | None:
    value = _event.tensor(held)
    return None if value is None else read & value.isfinite()


def _clipped(event: _Event, name: str, held: Held, read: Tensor, _operands: set[int]) -> Tensor | None:
    value = event.tensor(held)
    if name != "self" or value is None:
        return None
    if event.base in ("relu", "relu6"):
        inside = ~(value <= 0)
        return read & (inside & (value < 6) if event.base == "relu6" else inside)
    low = event.given("min") if event.base != "hardtanh" else event.given("min_val")
    high = event.given("max") if event.base != "hardtanh" else event.given("max_val")
    for bound, outside in ((low, torch.lt), (high, torch.gt)):
        if isinstance(bound, (int, float, torch.Tensor)):
            read = read & ~outside(value, bound)
    return read


def _extreme(event: _Event, name: str, held: Held, read: Tensor, _operands: set[int]) -> Tensor | None:
    mine, others = event.tensor(held), event.given("other" if name == "self" else "self")
    if mine is None or not isinstance(others, torch.Tensor):
        return None
    return read & ~((mine < others) if "max" in event.base else (mine > others))


def _masked(event: _Event, name: str, held: Held, read: Tensor, operands: set[int]) -> Tensor | None:
    """A factor of zeros and ones is a mask, where it was not computed as a number; 0 times Inf or NaN is NaN."""
    shape = None if event.kept.out is None else tuple(event.kept.out[0])
    position = event.row.operator.arg_names.index("other" if name == "self" else "self")
    factor = event.kept.held[position]
    mask = event.tensor(factor) if isinstance(factor, Held) else None
    if shape is None:
        return None
    if mask is None or mask.numel() > _MOST or address(factor.alias) in operands:
        return read.expand(shape)
    zero, one = mask == 0, mask == 1
    written = bool(one.any()) or mask.dtype is torch.bool or event.writes_masks(factor)
    own = event.tensor(held)
    return (
        read & ~(zero if own is None else zero & own.isfinite())
        if written and bool((zero | one).all())
        else read.expand(shape)
    )


_PASSES: Final[dict[str, Callable[[_Event, str, Held, Tensor, set[int]], Tensor | None]]] = {
    "where": _where,
    "masked_fill": _filled,
    "index_put": _put,
    "nan_to_num": _without_bad,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "relu", "relu6", "hardtanh"), _clipped),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), _extreme),
    "mul": _masked,
}
