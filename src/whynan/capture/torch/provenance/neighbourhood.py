"""How the operations around a birth are read off the window: the events that it still holds the operands of."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.provenance.neighbourhood import NeighbourhoodLog, limits, plain_argument
from whynan.capture.torch.event_log import Held, address
from whynan.capture.torch.provenance.operands import dtype_name, finite_range
from whynan.capture.torch.provenance.selections import Selections
from whynan.records import Argument, Operation

if TYPE_CHECKING:
    from collections.abc import Hashable

    from torch import Tensor

    from whynan.capture.provenance.neighbourhood import Numbers
    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import Operands, Row
    from whynan.records import Selection
    from whynan.traces import Birth

_LATER: Final = 1 << 12
"""So many events after a forward event are asked whether they have read what it wrote."""
_COUNTED: Final = 1 << 20
"""Elements of a tensor whose range is told."""
_ENTRIES: Final = 8


class EventNeighbourhoods:
    """The neighbourhoods of a trace's births. Nothing of it works while nothing is bad, and it holds no tensors."""

    def __init__(self, context: TraceContext) -> None:
        self._context = context
        self._around = NeighbourhoodLog(self, "aten")
        self._selections = Selections(context, _LATER)

    def begin(self, birth: Birth, row: Row, forward: Row | None) -> None:
        """A birth at an event of the forward, or at one of the backward that differentiates one."""
        first = self._context.first
        if forward is not None:
            last = min(forward.ordinal + _LATER, self._context.ordinal)
            later = range(forward.ordinal + 1 - first, last - first)
            self._around.begin(birth, forward.ordinal - first, later, lambda: self._left_out(birth, forward))
        elif row.phase == 0:
            self._around.begin(birth, row.ordinal - first)

    def _left_out(self, birth: Birth, forward: Row) -> Selection | None:
        """What has left the forward's result out where its gradient is bad."""
        element = birth.element
        return self._selections.exclusion_of_gradient(forward, element.index, element.shape, idle=_is_idle(birth))

    def record_exclusions(self, birth: Birth, made_from: frozenset[int], forward: Row | None) -> None:
        """A birth in the backward goes back to others that the forward has known: what had left those out."""
        labels = self._context.labels
        for one in (*map(labels.birth, made_from), *self._beside(birth, forward)):
            around, place = one.around, one.element.index
            row = self._context.rows.get(one.event.ordinal + self._context.first)
            if row is None or place is None or one.element.output or around is None or around.left_out is not None:
                continue
            found = self._selections.exclusion_of_result(row, place, idle=_is_idle(birth))
            if found is not None:
                one.around = around.model_copy(update={"left_out": found})

    def _beside(self, birth: Birth, forward: Row | None) -> list[Birth]:
        """What the operation that a birth is the derivative of has borne itself, at the same element."""
        if forward is None:
            return []
        births, at, place = self._context.labels.births, forward.ordinal - self._context.first, birth.element
        start, end = (find(births, at, key=lambda b: b.event.ordinal) for find in (bisect_left, bisect_right))
        return [b for b in births[start:end] if (b.element.index, b.element.shape) == (place.index, place.shape)]

    def record_bad_reader(self, row: Row) -> None:
        """An event of the forward has read something bad."""
        if row.phase == 0:
            self._around.record_bad_reader(row.ordinal - self._context.first)

    def writers_read(self, event: int) -> frozenset[int]:
        """The events that had written the operands of an event of the window."""
        kept = self._context.rows.operands_at(event + self._context.first)
        if kept is None:
            return frozenset()
        entries = [e for h in kept.held for e in (h if type(h) is list else (h,))]
        return frozenset(e.writer - self._context.first for e in entries if isinstance(e, Held))

    def operation(self, event: int, hops: int, numbers: Numbers) -> Operation | None:
        """An event of the window; None where its operands have left it."""
        row = self._context.rows.get(event + self._context.first)
        kept = None if row is None else self._context.rows.operands_at(row.ordinal)
        if row is None or kept is None:
            return None
        arguments: list[Argument | None] = []
        for name, value in zip(row.operator.arg_names, kept.held, strict=False):
            if isinstance(value, list):
                entries: list[Any] = value
                for i, entry in enumerate(entries[:_ENTRIES]):
                    if isinstance(entry, Held):
                        arguments.append(self._argument(f"{name}[{i}]", entry, kept, numbers))
                arguments.append(plain_argument(name, entries))
            elif isinstance(value, Held):
                arguments.append(self._argument(name, value, kept, numbers))
            else:
                arguments.append(plain_argument(name, value))
        arguments += [plain_argument(name, value) for name, value in (kept.named or {}).items()]
        return Operation(
            event=event,
            op=row.operator.name,
            hops=hops,
            arguments=tuple(a for a in arguments if a is not None),
            shape=None if kept.out is None else tuple(int(s) for s in kept.out[0]),
        )

    def _argument(self, name: str, held: Held, kept: Operands, numbers: Numbers) -> Argument:
        rows, first = self._context.rows, self._context.first
        tensor: Tensor | None = held.alias if rows.is_live(held) else None
        if tensor is None and kept.before is not None and kept.held[0] is held:
            tensor = kept.before
        low, high = limits(*finite_range(tensor)) if tensor is not None and tensor.numel() <= _COUNTED else (None, None)
        made = held.writer - first if held.writer >= first else None
        return Argument(
            name=name,
            event=made,
            elements=numbers.number_of((made, *_elements(held.alias))),
            shape=tuple(int(s) for s in held.alias.shape),
            dtype=dtype_name(held.alias.dtype),
            min=low,
            max=high,
        )


def _is_idle(birth: Birth) -> bool:
    """Whether what came in as gradient is 0: of finite numbers only a product with it, or 0 / 0, gives a NaN."""
    return birth.kind == "invalid" and any(o.value == 0 for o in birth.element.operands)


def _elements(alias: Tensor) -> tuple[Hashable, ...]:
    """What is the same for all tensors that show the same elements, whatever their shape."""
    seen = frozenset((int(n), s) for n, s in zip(alias.shape, alias.stride(), strict=True) if n > 1 and s)
    return address(alias), int(alias.storage_offset()), seen
