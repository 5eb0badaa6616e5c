"""Optimizers that step on the gradients of one backward: the first of them moves weights before the next is judged.

Which come together is learnt as they do. What is bad for a later one is then explained before the first has stepped,
and told of only if the later one does step on it.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.torch.identities import Identities
from whynan.capture.torch.judging import gradients_of, judge, norm_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.torch.judging import Fault, Judged, Losses

MOST_UNCLAIMED: Final = 3
"""So many explanations of what no step came to use, and nothing is explained beforehand any more."""


class Together:
    """The optimizers of one thread that have stepped since its last backward, and those that come after them."""

    def __init__(self) -> None:
        self._since: list[weakref.ref[Any]] = []
        self._later: Identities[list[weakref.ref[Any]]] = Identities()
        self._early: tuple[Fault, Any] | None = None
        self._unclaimed = 0

    def backward(self) -> None:
        """Gradients are about to be computed."""
        self._since.clear()
        self._early = None

    def step(self, optimizer: Any) -> bool:
        """An optimizer is about to step; whether another has stepped on these gradients."""
        first = self._since[0]() if self._since else None
        self._since.append(weakref.ref(optimizer))
        if first is None or first is optimizer:
            return False
        later = self._later.get(first) or []
        if not any(known() is optimizer for known in later):
            self._later.set(first, [*later, weakref.ref(optimizer)])
        return True

    def after(self, optimizer: Any) -> list[Any]:
        """The optimizers that will step after this one on the same gradients."""
        if len(self._since) != 1 or self._unclaimed >= MOST_UNCLAIMED:
            return []
        return [o for known in self._later.get(optimizer) or [] if (o := known()) is not None]

    def ahead(self, optimizer: Any, losses: Losses, only: Sequence[int]) -> tuple[Any, Judged] | None:
        """What is bad for one that will step after this one: it, and what its step would be made of.

        `only`: the numbers of those that are looked at; all where there are none.
        """
        for other in self.after(optimizer):
            if not only or id(other) in only:
                norm = norm_of([g for _, g in gradients_of(other)])
                judged = None if norm - norm == 0 else judge(other, losses)
                if judged is not None and not judged.is_good:
                    return other, judged
        return None

    def keep(self, fault: Fault, explained: Any) -> None:
        """What is known of a step that may come."""
        self._early = fault, explained
        self._unclaimed += 1

    def explained(self, fault: Fault) -> tuple[Fault, Any] | None:
        """What is known of a step that has come, if it is made of the same."""
        early = self._early
        if early is None or early[0].optimizer is not fault.optimizer:
            return None
        # the losses are those of the first step
        if not replace(early[0].judged, losses=fault.judged.losses).same_as(fault.judged):
            return None
        self._unclaimed = 0
        return early
