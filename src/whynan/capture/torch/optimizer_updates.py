"""The optimizer-update detector: what one step of an optimizer consumes, and what it should move and does not.

It finds a gradient out of all proportion, gradients that an infinite norm has made 0, and weights in half precision
whose update rounds away. A trace feeds it the events of a step (`update_events`), a watch the weights before and after
it (`watch_detectors`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.torch.judging import gradients_of
from whynan.capture.torch.operands import at, dtype_name, first_index
from whynan.capture.torch.planes import FLOATS, HALVES, PLAIN, local, readable
from whynan.capture.torch.rows import Row, address
from whynan.floats import format_of
from whynan.records import Damage, Element

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.names import Names

STEEP: Final = 1e10
"""A gradient beyond it is out of all proportion."""
_SAMPLE: Final = 256
"""About so many elements of a weight show whether it has moved."""
_MOSTLY: Final = 0.5
"""The part of an optimizer's elements in half precision that has to stand still."""


class Detection(NamedTuple):
    """Silent damage, the first element of it, and the event that did it, where that is known."""

    damage: Damage
    element: Element
    row: Row | None = None


@dataclass(slots=True)
class Weight:
    """A weight in half precision: a sample of it before the step, and the greatest update that has rounded away."""

    parameter: Tensor
    group: dict[str, Any]
    before: Tensor
    update: float = 0.0
    row: Row | None = None

    @property
    def is_unmoved(self) -> bool:
        """Whether the sample is what it was, by whatever way an optimizer may have written to the weight."""
        return torch.equal(_sample(self.parameter.detach()), self.before)


class OptimizerStep:
    """One step of an optimizer, from before it to after it; a step that a loss scaler skips has no gradients."""

    def __init__(self, optimizer: Any, names: Names) -> None:
        self.optimizer = optimizer
        self.gradients = [] if _is_skipped(optimizer) else [(p, g) for p, g in gradients_of(optimizer) if _is_plain(g)]
        self.weights: dict[int, Weight] = {}
        """Those that should move, by address."""
        self._total = 0
        self._names = names

    @functools.cached_property
    def magnitudes(self) -> list[float]:
        """The greatest magnitude of each gradient, in one transfer for each device and dtype."""
        found = [0.0] * len(self.gradients)
        kinds: dict[Any, list[int]] = {}
        for number, (_, gradient) in enumerate(self.gradients):
            kinds.setdefault((gradient.device, gradient.dtype), []).append(number)
        for numbers in kinds.values():
            ends = torch.stack([self.gradients[n][1].detach().abs().max() for n in numbers]).tolist()
            for number, end in zip(numbers, ends, strict=True):
                found[number] = end
        return found

    # -- what it consumes --------------------------------------------------------------------------------------------

    def steep(self) -> Detection | None:
        """The greatest gradient, where it is out of all proportion without the scale of a loss scaler."""
        scale = getattr(self.optimizer, "grad_scale", None)
        factor, most = 1.0 if scale is None else float(scale), max(self.magnitudes, default=0.0)
        if not STEEP < most / factor < math.inf:
            return None
        parameter, gradient = self.gradients[self.magnitudes.index(most)]
        where = gradient.abs() / factor > STEEP
        count = int(where.sum())
        numbers = {"largest": most / factor, "limit": STEEP}
        damage = Damage(kind="steep", concerned=count, total=gradient.numel(), numbers=numbers)
        return Detection(damage, self._element(parameter, gradient, where, count, factor))

    @property
    def is_zero(self) -> bool:
        """Whether there are gradients, and all of them are 0."""
        return bool(self.gradients) and max(self.magnitudes) == 0

    def zeroed(self, dtype: str, number: int = 0, row: Row | None = None) -> Detection:
        """The gradients, all of them 0 because their norm is infinite in a dtype; `number`: the one that is shown."""
        parameter, gradient = self.gradients[number]
        total = sum(g.numel() for _, g in self.gradients)
        numbers = {"gradients": float(len(self.gradients)), "limit": format_of(dtype).max}
        damage = Damage(kind="zeroed", concerned=total, total=total, numbers=numbers)
        return Detection(damage, self._element(parameter, gradient, gradient == 0, total), row)

    # -- what it moves -----------------------------------------------------------------------------------------------

    def follow_weights(self) -> None:
        """Take a sample of each weight in half precision whose gradient and learning rate are not 0."""
        groups = [g for g in self.optimizer.param_groups if _is_full_rate(g)]
        found = [(p, g) for g in groups for p in g["params"] if p.dtype in HALVES and _is_plain(p)]
        most = self.magnitudes if found else ()
        graded = {id(p) for (p, _), largest in zip(self.gradients, most, strict=False) if largest > 0}
        for parameter, group in found:
            if id(parameter) in graded:
                before = _sample(parameter.detach()).clone()
                self.weights[address(parameter)] = Weight(parameter, group, before)
                self._total += parameter.numel()

    def follows(self, target: Any) -> bool:
        """Whether a tensor is a weight that nothing is known to have moved."""
        return bool(self.weights) and _is_plain(target) and address(target) in self.weights

    def change(self, target: Tensor, update: Any, row: Row | None = None) -> None:
        """An update was added to a weight that is followed; None where nobody knows how much it was."""
        largest = None if update is None else _rounded_away(target.detach(), update)
        if largest is None:
            del self.weights[address(target)]
            return
        weight = self.weights[address(target)]
        if largest > weight.update:
            weight.update, weight.row = largest, row

    def stalled(self, steps: float = math.inf) -> Detection | None:
        """The largest weight that should have moved and did not, where most of the elements are in such weights.

        Not where `steps` such updates together would not move it either: it has learnt what there is.
        """
        still = [w for w in self.weights.values() if w.update and w.is_unmoved]
        count = sum(w.parameter.numel() for w in still)
        if not still or count < _MOSTLY * self._total:
            return None
        weight = max(still, key=lambda w: w.parameter.numel())
        sizes = weight.parameter.detach().abs().float()
        least = float(sizes[sizes > 0].min()) if bool((sizes > 0).any()) else 0.0
        ulp = format_of(dtype_name(weight.parameter.dtype)).ulp(least)
        if weight.update * steps < ulp / 2:
            return None
        element = self._element(weight.parameter, weight.parameter.detach(), sizes == sizes.max(), count)
        numbers = {
            "rate": rate_of(weight.group),
            "update": weight.update,
            "ulp": ulp,
            "least": least,
            "parameters": float(len(still)),
        }
        damage = Damage(kind="stalled", concerned=count, total=self._total, numbers=numbers)
        return Detection(damage, element, weight.row)

    def _element(self, leaf: Tensor, holder: Tensor, where: Tensor, count: int, factor: float = 1.0) -> Element:
        place = first_index(where)
        value = None if place is None else at(holder, place)
        return Element(
            index=place,
            tensor=self._names.leaf_name(leaf),
            # of a leaf in parts over several processes, the part that is here
            shape=tuple(int(s) for s in (leaf if local(leaf) is leaf else holder).shape),
            dtype=dtype_name(holder.dtype),
            value=value / factor if isinstance(value, (int, float)) else None,
            count=count,
            total=max(count, holder.numel()),
        )


def rate_of(group: dict[str, Any], name: str = "lr", default: float = 1.0) -> float:
    """The learning rate of a group of parameters, or another that is noted under a name."""
    rate = group.get(name)
    return float(rate) if isinstance(rate, (int, float, torch.Tensor)) else default


def _is_full_rate(group: dict[str, Any]) -> bool:
    """Whether a learning rate is one to learn with: no schedule has taken it down, or has yet to take it up."""
    rate = rate_of(group)
    return 0 < rate >= max(rate_of(group, name, rate) for name in ("initial_lr", "max_lr")) / 2


def _is_skipped(optimizer: Any) -> bool:
    """Whether a loss scaler has told an optimizer to leave out this step."""
    found_inf = getattr(optimizer, "found_inf", None)
    return isinstance(found_inf, torch.Tensor) and bool(found_inf.any())


def _is_plain(tensor: Any) -> bool:
    known = type(tensor) in PLAIN and tensor.dtype in FLOATS and tensor.element_size() > 1
    return known and readable(tensor) and tensor.numel() > 0


def _rounded_away(weight: Tensor, update: Any) -> float | None:
    """The greatest part of an update that changes no element at all; None where it changes one, or is not finite."""
    change = torch.as_tensor(update, dtype=torch.float32, device=weight.device).expand(weight.shape)
    for part, move in ((_sample(weight), _sample(change)), (weight, change)):
        if not bool(((part.float() + move).to(weight.dtype) == part).all()):
            return None
    return float(change.abs().max())


def _sample(tensor: Tensor) -> Tensor:
    """A few elements from all over a tensor."""
    flat = tensor.reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLE)]
