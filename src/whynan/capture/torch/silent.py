"""Silent damage: what is read for its rules, where a rule that is live asks for it, and what was found."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch import bounds, experiments, guards
from whynan.capture.torch.lanes import OPTIMIZER
from whynan.capture.torch.operands import at, dtype_name, first_index
from whynan.capture.torch.planes import is_strided
from whynan.capture.torch.updates import Updates
from whynan.records import Damage, DamageKind, Element, Operand
from whynan.traces import Event, Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.capture.torch.bounds import Lost
    from whynan.capture.torch.lanes import Lane
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.rows import Row
    from whynan.capture.torch.tracer import Tracer
    from whynan.records import Phase

READERS: Final[dict[str, tuple[tuple[str, Callable[..., Lost | None]], ...]]] = {
    **dict.fromkeys(guards.WRITING, (("masks", guards.written),)),
    **dict.fromkeys(bounds.CASTS, (("ranges", bounds.saturated),)),
    **dict.fromkeys(bounds.CLAMPS, (("bounds", bounds.clamped),)),
    **dict.fromkeys(bounds.SUMS, (("bounds", bounds.added), ("masks", guards.summed))),
}
"""What is asked of an event of the forward, by the base name of its operator, and the reading that it serves."""
_MOST: Final = 256
"""So many places are told."""


class Silents:
    """The silent damage of a trace; `reads` names what is looked at, and where it is empty nothing is."""

    def __init__(self, tracer: Tracer, reads: frozenset[str] = frozenset()) -> None:
        self.tracer = tracer
        self.found: list[Silent] = []
        self._places: dict[Any, Silent] = {}
        self.updates = Updates(self, reads)
        asked = {base: [ask for reading, ask in asks if reading in reads] for base, asks in READERS.items()}
        self._asked = {base: asks for base, asks in asked.items() if asks}
        self._vanished: dict[int, tuple[weakref.ref[Tensor], Silent]] = {}
        """What a constant did not move, by the identity of the tensor: the program may ask for that itself."""
        looked_at = {*self._asked, *(bounds.COMPARISONS if "bounds" in reads else ())}
        self.asked: tuple[frozenset[str], ...] = (frozenset(looked_at), frozenset(), frozenset(), self.updates.asked)
        """By phase, the base names of the operators that are looked at."""

    def look(
        self,
        row: Row,
        operator: Operator,
        args: Any,
        kwargs: Any,
        written: Any,
        before: dict[int, Tensor] | None,
        node: Any,
        lane: Lane,
    ) -> None:
        """Ask of one event whether it lost what it should have kept."""
        if not all(map(is_strided, experiments.tensors_in([args, written]))):
            return
        if row.phase == OPTIMIZER:
            self.updates.moved(row, operator, args, kwargs, node, lane)
            return
        if not written or node is not None:
            # under a node of the backward it is a checkpoint's forward, which was looked at already
            return
        if operator.base in bounds.COMPARISONS:
            self._compared(args)
            return
        with torch._C._DisableTorchDispatch():
            for ask in self._asked[operator.base]:
                lost = ask(self.tracer, operator, args, kwargs, written[0], before)
                if lost is not None:
                    self._tell(row, operator, args, written[0], lost, node, lane)
                    return

    def _tell(self, row: Row, operator: Operator, args: Any, output: Tensor, lost: Lost, node: Any, lane: Lane) -> None:
        tracer = self.tracer
        place = first_index(lost.where)
        if place is None:
            return
        names = operator.arg_names
        name = None if lost.argument is None else names[lost.argument]
        numbers = {n for n, a in zip(names, args, strict=False) if isinstance(a, (int, float))}
        texts = tracer.sites.expressions(row.site, operator.name, names, numbers)
        was = Operand(
            name=name or "self",
            expression=None if name is None else texts.get(name),
            index=place,
            value=at(lost.source, place),
            dtype=dtype_name(lost.source.dtype),
            origin="live",
            shape=tuple(int(s) for s in lost.source.shape),
        )
        concerned = int(lost.where.sum())
        element = Element(
            index=place,
            shape=tuple(int(s) for s in output.shape),
            dtype=dtype_name(output.dtype),
            value=_real(at(output, place)),
            count=concerned,
            total=output.numel(),
            operands=(was,),
        )
        made = self.add(row, operator, args, element, lost.kind, concerned, output.numel(), lost.numbers, node, lane)
        if made is not None and lost.kind == "vanished":
            self._vanished[id(output)] = weakref.ref(output), made

    def _compared(self, args: Any) -> None:
        """A comparison with the number that a constant did not move from: nothing is lost of what the program knows."""
        known, made = self._vanished.get(id(args[0]), (None, None))
        if made is None or known is None or known() is not args[0] or type(args[1]) not in (int, float):
            return
        if args[1] == made.damage.numbers["bound"]:
            del self._vanished[id(args[0])]
            self.found = [one for one in self.found if one is not made]
            self._places = {place: one for place, one in self._places.items() if one is not made}

    def _known(self, site: int, name: str | None, kind: DamageKind, module: int) -> bool:
        """Whether the same was seen at this place before, and is counted now."""
        tracer = self.tracer
        known = self._places.get((tracer.sites.key(site), name, kind, tracer.scope))
        if known is None:
            return len(self.found) >= _MOST
        known.occurrences += 1
        if (path := tracer.names.module_path(module)) is not None:
            known.modules[path] = None
        return True

    def _keep(self, site: int, name: str | None, made: Silent) -> None:
        self._places[self.tracer.sites.key(site), name, made.damage.kind, made.scope] = made
        self.found.append(made)

    def add(
        self,
        row: Row,
        operator: Operator,
        args: Any,
        element: Element,
        kind: DamageKind,
        concerned: int,
        total: int,
        numbers: dict[str, float],
        node: Any,
        lane: Lane,
    ) -> Silent | None:
        """Keep what an event has done to an element, and to how many; None of what is known there, which is counted."""
        if self._known(row.site, operator.name, kind, row.module):
            return None
        event = self.tracer.bad.events.event(row, node, lane, operator, args)
        made = Silent(
            event,
            element,
            Damage(kind=kind, concerned=concerned, total=total, numbers=numbers),
            scope=self.tracer.scope,
        )
        if event.site is not None and event.site.module:
            made.modules[event.site.module] = None
        self._keep(row.site, operator.name, made)
        return made

    def add_at(
        self,
        site: int,
        phase: Phase,
        element: Element,
        kind: DamageKind,
        concerned: int,
        total: int,
        numbers: dict[str, float],
    ) -> None:
        """Keep what was met at a place where no event did it."""
        tracer = self.tracer
        if self._known(site, None, kind, 0):
            return
        step, micro = tracer.bad.sinks.steps.now(in_backward=False)
        where, library = tracer.sites.resolve(site, None)
        event = Event(tracer.ordinal - tracer.first, None, phase, where, library, step=step, micro=micro)
        damage = Damage(kind=kind, concerned=concerned, total=total, numbers=numbers)
        self._keep(site, None, Silent(event, element, damage, scope=tracer.scope))


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
