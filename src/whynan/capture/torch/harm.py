"""Silent damage in watched steps: gradients out of proportion or all clipped to 0, weights that no update moves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.judging import Fault, gradients_of, judge
from whynan.capture.torch.names import Names
from whynan.capture.torch.operands import at, dtype_name, first_index
from whynan.capture.torch.planes import is_strided, local
from whynan.capture.torch.sites import Sites
from whynan.capture.torch.stalling import Stalling
from whynan.floats import format_of
from whynan.records import Damage, Element
from whynan.traces import Event, Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.capture.torch.judging import Losses
    from whynan.capture.torch.reading import Reading
    from whynan.capture.torch.stalling import Stalled
    from whynan.records import DamageKind

STEEP: Final = 1e10
"""A gradient beyond it is out of all proportion."""

_LOOKS: Final = 3
"""So often the steps of a training are looked into whose gradients are all 0, and nothing is found."""


class Harms:
    """The silent damage of watched steps; of `reads` what rules ask for, and `scope` gives the allowances in force.

    `look_into` is given a step whose gradients are all 0 though its loss is not, and tells whether it found why.
    """

    def __init__(self, reads: frozenset[str], scope: Callable[[], tuple[int, ...]]) -> None:
        self.found: list[Silent] = []
        self.names = Names()
        self._gradients = "gradients" in reads
        self._stalling = Stalling() if "parameters" in reads else None
        self._scope = scope
        self._sites = Sites()
        self._places: dict[Any, Silent] = {}
        self._clipped: tuple[Tensor, int] | None = None
        self.look_into: Callable[[Fault], bool] | None = None
        self._doubted: Fault | None = None
        self._zero: set[int] = set()
        self._looks = _LOOKS

    # -- what a step consumes ----------------------------------------------------------------------------------------

    def clips(self, norm: Any) -> None:
        """The program is about to clip its gradients by this norm, which is not read."""
        if self._gradients and isinstance(norm, torch.Tensor) and norm.numel() == 1 and local(norm) is norm:
            self._clipped = norm.detach(), self._sites.here(2)

    def clipped(self) -> tuple[Tensor, int] | None:
        """By which norm, and where, the gradients of the step were clipped that is about to be made."""
        clipped, self._clipped = self._clipped, None
        return clipped

    def consumes(
        self, optimizer: Any, step: int, reading: Reading, clipped: tuple[Tensor, int] | None, losses: Losses
    ) -> None:
        """A step is about to be made of gradients of which this was read."""
        norm = reading.norm
        if norm is None or not self._gradients:
            return
        again = id(optimizer) in self._zero
        if norm != 0:
            self._zero.discard(id(optimizer))
        if 0 < norm <= STEEP:
            return
        gradients = [(p, g) for p, g in gradients_of(optimizer) if is_strided(g) and g.numel()]
        if norm > STEEP:
            self._steep(gradients, step, getattr(optimizer, "grad_scale", None))
        elif norm == 0 and gradients:
            self._zero.add(id(optimizer))
            known = clipped is not None and self._zeroed(gradients, step, *clipped)
            if not known and not again and self._looks and any(reading.losses):
                self._doubted = Fault(optimizer, step, judge(optimizer, losses))

    def look(self) -> None:
        """Have a step looked into that is about to be made, if there is doubt about it."""
        doubted, self._doubted = self._doubted, None
        if doubted is not None and self.look_into is not None:
            self._looks -= 1
            if self.look_into(doubted):
                self._looks = 0

    def _steep(self, gradients: list[tuple[Tensor, Tensor]], step: int, scale: Any) -> None:
        """The greatest gradient, where it is so great by itself: the scale of a loss scaler does not count."""
        factor = 1.0 if scale is None else float(scale)
        most = [float(g.abs().amax()) / factor for _, g in gradients]
        largest = max(most, default=0.0)
        if not STEEP < largest < math.inf:
            return
        parameter, gradient = gradients[most.index(largest)]
        where = gradient.abs() / factor > STEEP
        count = int(where.sum())
        element = self._element(parameter, gradient, first_index(where), count, factor)
        numbers = {"largest": largest, "limit": STEEP}
        self._tell(self._sites.here(), step, element, "steep", count, gradient.numel(), numbers)

    def _zeroed(self, gradients: list[tuple[Tensor, Tensor]], step: int, norm: Tensor, site: int) -> bool:
        """Whether every gradient is 0 because the norm that they were divided by was Inf; then it is told."""
        if not math.isinf(float(norm)):
            return False
        parameter, gradient = gradients[0]
        total = sum(g.numel() for _, g in gradients)
        element = self._element(parameter, gradient, (0,) * gradient.dim(), total)
        numbers = {"gradients": float(len(gradients)), "limit": format_of(dtype_name(norm.dtype)).max}
        self._tell(site, step, element, "zeroed", total, total, numbers)
        return True

    # -- what it moves -----------------------------------------------------------------------------------------------

    def begins(self, optimizer: Any) -> None:
        """A step is about to be made."""
        if self._stalling is not None:
            self._stalling.begins(optimizer)

    def made(self, optimizer: Any, step: int) -> None:
        """A step has been made."""
        stalled = None if self._stalling is None else self._stalling.made(optimizer)
        if stalled is not None:
            self._stalled(stalled, step)

    def _stalled(self, stalled: Stalled, step: int) -> None:
        weights = stalled.parameter.detach()
        place = first_index(weights.abs() == weights.abs().amax())
        element = self._element(stalled.parameter, weights, place, stalled.concerned)
        numbers = {**stalled.numbers, "ulp": format_of(element.dtype).ulp(stalled.numbers["least"])}
        self._tell(self._sites.here(), step, element, "stalled", stalled.concerned, stalled.total, numbers)

    def forget(self) -> None:
        """Hold on to nothing of the program's."""
        self._clipped = self._doubted = None
        if self._stalling is not None:
            self._stalling.forget()

    # -- what is told ------------------------------------------------------------------------------------------------

    def _element(
        self, leaf: Tensor, holder: Tensor, place: tuple[int, ...] | None, count: int, factor: float = 1.0
    ) -> Element:
        value = None if place is None else at(holder, place)
        return Element(
            index=place,
            tensor=self.names.leaf_name(leaf),
            # of a leaf in parts over several processes, the part that is here
            shape=tuple(int(s) for s in (leaf if local(leaf) is leaf else holder).shape),
            dtype=dtype_name(holder.dtype),
            value=value / factor if isinstance(value, (int, float)) else None,
            count=count,
            total=max(count, holder.numel()),
        )

    def _tell(
        self,
        site: int,
        step: int,
        element: Element,
        kind: DamageKind,
        concerned: int,
        total: int,
        numbers: dict[str, float],
    ) -> None:
        scope = self._scope()
        key = self._sites.key(site), kind, scope
        known = self._places.get(key)
        if known is not None:
            known.occurrences += 1
            return
        where, library = self._sites.resolve(site, None)
        event = Event(0, None, "optimizer", where, library, step=step)
        damage = Damage(kind=kind, concerned=concerned, total=total, numbers=numbers)
        made = self._places[key] = Silent(event, element, damage, scope=scope)
        self.found.append(made)
