"""Detectors of silent damage in a trace: what they look at, where a live rule asks for it, and what they found."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.provenance.operands import dtype_name, first_index, value_at
from whynan.capture.torch.shadow_memory import is_strided
from whynan.capture.torch.silent import guards, rounding
from whynan.capture.torch.silent.optimizer_updates import Detection, UpdateEvents
from whynan.capture.torch.sites import OPTIMIZER
from whynan.ops.table import TORCH
from whynan.records import Damage, Element, Operand
from whynan.traces import Event, Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import LiveEvent, Row
    from whynan.capture.torch.events import Events
    from whynan.capture.torch.silent.rounding import LostElements
    from whynan.capture.torch.sites import Lane

READERS: Final[dict[str, tuple[tuple[str, Callable[..., LostElements | None]], ...]]] = {
    **dict.fromkeys(TORCH.having("masked-write"), (("masks", guards.find_mask_write),)),
    **dict.fromkeys(rounding.CASTS, (("ranges", rounding.find_saturation),)),
    **dict.fromkeys(TORCH.having("clamp"), (("bounds", rounding.find_lost_bound),)),
    **dict.fromkeys(rounding.SUMS, (("bounds", rounding.find_lost_addend), ("masks", guards.find_mask_sum))),
}
"""What is asked of an event of the forward, by the base name of its operator, and the reading that it serves."""
_MOST: Final = 256
"""So many places are told."""


class DamageLog:
    """Silent damage by place: the first at each is kept, later ones are counted."""

    def __init__(self) -> None:
        self.found: list[Silent] = []
        self._places: dict[Hashable, Silent] = {}

    def add(self, place: Hashable, detection: Detection, scope: tuple[int, ...], event: Callable[[], Event]) -> Silent:
        """What is kept at a place: this, if nothing was; `event` makes its record."""
        key = place, detection.damage.kind, scope
        known = self._places.get(key)
        if known is not None:
            known.occurrences += 1
            return known
        made = self._places[key] = Silent(event(), detection.element, detection.damage, scope=scope)
        if len(self.found) < _MOST:
            self.found.append(made)
        return made

    def remove(self, made: Silent) -> None:
        """Forget what turned out to be none."""
        self.found = [one for one in self.found if one is not made]
        self._places = {place: one for place, one in self._places.items() if one is not made}


class Detectors:
    """The detectors of a trace; `reads` names what is looked at, and where it is empty nothing is."""

    def __init__(self, context: TraceContext, events: Events, reads: frozenset[str]) -> None:
        self.context = context
        self.events = events
        self.log = DamageLog()
        self.updates = UpdateEvents(context, reads, self._keep)
        asked = {base: [ask for reading, ask in asks if reading in reads] for base, asks in READERS.items()}
        self._asked = {base: asks for base, asks in asked.items() if asks}
        self._vanished: dict[int, tuple[weakref.ref[Tensor], Silent]] = {}
        """What a constant did not move, by the identity of the tensor: the program may ask for that itself."""
        self.asked = frozenset({*self._asked, *(TORCH.having("comparison") if "bounds" in reads else ())})
        """The base names of the operators that are looked at in the forward."""

    def check_event(self, live: LiveEvent) -> None:
        """Ask of one event whether it lost what it should have kept."""
        row, args, kwargs, written, before, node, lane, _ = live
        operator = row.operator
        if not all(map(is_strided, interventions.tensors_in([args, written]))):
            return
        if row.phase == OPTIMIZER:
            self.updates.add(row, operator, args, kwargs)
            return
        if not written or node is not None:
            # under a node of the backward it is a checkpoint's forward, which was looked at already
            return
        if operator.base in TORCH.having("comparison"):
            self._compared(args)
            return
        with torch._C._DisableTorchDispatch():
            for ask in self._asked[operator.base]:
                lost = ask(self.context.rows, operator, args, kwargs, written[0], before)
                if lost is not None:
                    self._lost(row, args, written[0], lost, lane)
                    return

    def _lost(self, row: Row, args: Any, output: Tensor, lost: LostElements, lane: Lane) -> None:
        place = first_index(lost.where)
        if place is None:
            return
        concerned, total = int(lost.where.sum()), output.numel()
        value = value_at(output, place)
        element = Element(
            index=place,
            shape=tuple(int(s) for s in output.shape),
            dtype=dtype_name(output.dtype),
            value=float(value) if isinstance(value, (int, float)) else None,
            count=concerned,
            total=total,
            operands=(self._source(row, args, lost, place),),
        )
        damage = Damage(kind=lost.kind, concerned=concerned, total=total, numbers=lost.numbers)
        made = self._keep(Detection(damage, element, row), lane, args)
        if made is not None and lost.kind == "vanished" and made.occurrences == 1:
            self._vanished[id(output)] = weakref.ref(output), made

    def _source(self, row: Row, args: Any, lost: LostElements, place: tuple[int, ...]) -> Operand:
        """What the element was before."""
        names = row.operator.arg_names
        name = None if lost.argument is None else names[lost.argument]
        numbers = {n for n, a in zip(names, args, strict=False) if isinstance(a, (int, float))}
        texts = self.context.sites.expressions(row.site, row.operator.name, names, numbers)
        return Operand(
            name=name or "self",
            expression=None if name is None else texts.get(name),
            index=place,
            value=value_at(lost.source, place),
            dtype=dtype_name(lost.source.dtype),
            origin="live",
            shape=tuple(int(s) for s in lost.source.shape),
        )

    def _compared(self, args: Any) -> None:
        """A comparison with the number that a constant did not move from: nothing is lost of what the program knows."""
        known, made = self._vanished.get(id(args[0]), (None, None))
        if made is None or known is None or known() is not args[0] or type(args[1]) not in (int, float):
            return
        if args[1] == made.damage.numbers["bound"]:
            del self._vanished[id(args[0])]
            self.log.remove(made)

    def _keep(self, detection: Detection | None, lane: Lane, args: Any = ()) -> Silent | None:
        """Log what an event has done, or what was met as a step began."""
        if detection is None:
            return None
        context, row = self.context, detection.row
        site = lane.optimizer_site if row is None else row.site
        place = context.sites.key(site), None if row is None else row.operator.name
        made = self.log.add(place, detection, context.scope, lambda: self._event(row, lane, args))
        path = None if row is None else context.names.module_path(row.module)
        if path is not None:
            made.modules[path] = None
        return made

    def _event(self, row: Row | None, lane: Lane, args: Any) -> Event:
        context = self.context
        if row is not None:
            return self.events.event(row, None, lane, args)
        where, library = context.sites.resolve(lane.optimizer_site, None)
        step, micro = context.log.steps.now(in_backward=False)
        return Event(context.ordinal - context.first, None, "optimizer", where, library, step=step, micro=micro)
