"""The optimizer-update detector: what one step consumes, and what it should move and does not."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.torch.event_log import Held, Row, address
from whynan.capture.torch.provenance.operands import dtype_name, first_index, value_at
from whynan.capture.torch.shadow_memory import FLOATS, HALVES, PLAIN, is_readable, local
from whynan.capture.torch.sinks.gradients import gradients_of
from whynan.floats import format_of
from whynan.ops.table import TORCH
from whynan.records import Damage, Element

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.names import Names
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.sites import Lane


# -- The optimizer-update detector: what one step of an optimizer consumes, and what it should move and does not -------
#
# It finds a gradient out of all proportion, gradients that an infinite norm has made 0, and weights in half precision
# whose update rounds away. A trace feeds it the events of a step (`update_events`), a watch the weights before and
# after it (`watch_detectors`).


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
            ends = torch.stack([end for n in numbers for end in _ends(self.gradients[n][1].detach())])
            for number, end in zip(numbers, ends.view(-1, 2).abs().amax(1).tolist(), strict=True):
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
        value = None if place is None else value_at(holder, place)
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


def _ends(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Two elements, the greatest in magnitude of a tensor among them: its least and its greatest, in one pass."""
    if tensor.is_complex():
        most = tensor.abs().max()
        return most, most
    low, high = torch.aminmax(tensor)
    return low, high


def _is_plain(tensor: Any) -> bool:
    known = type(tensor) in PLAIN and tensor.dtype in FLOATS and tensor.element_size() > 1
    return known and is_readable(tensor) and tensor.numel() > 0


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


# -- What a trace feeds the optimizer-update detector with: the events of a step, and the operands of those before it


_SCALING: Final = frozenset("mul_ div_".split())
_HOPS: Final = 8


class UpdateEvents:
    """The steps of a trace's optimizers, as far as rules ask for them; `keep` is given what is found."""

    def __init__(
        self, context: TraceContext, reads: frozenset[str], keep: Callable[[Detection | None, Lane], object]
    ) -> None:
        self._context = context
        self._gradients = "gradients" in reads
        self._parameters = "parameters" in reads
        self._keep = keep
        self._step: OptimizerStep | None = None
        self.asked: frozenset[str] = frozenset()
        """The base names of the operators that are looked at in the step under way."""

    def begin(self, optimizer: Any, lane: Lane) -> None:
        """A step is about to consume gradients."""
        self._forget()
        if optimizer is None or not (self._gradients or self._parameters):
            return
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            step = OptimizerStep(optimizer, self._context.names)
            if self._gradients:
                self._keep(step.steep() or self._zeroed(step), lane)
            if self._parameters:
                step.follow_weights()
                self._step = step
                self.asked = TORCH.having("update", "rewrite") if step.weights else frozenset()

    def add(self, row: Row, operator: Operator, args: Any, kwargs: Any) -> None:
        """An event of a step that may have changed a weight."""
        step = self._step
        if step is None or not step.weights:
            return
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            targets: list[Any] = list(args[0]) if isinstance(args[0], (list, tuple)) else [args[0]]
            for number, target in enumerate(targets):
                if step.follows(target):
                    step.change(target, _added(operator, args, kwargs, number, target), row)

    def end(self, lane: Lane) -> None:
        """The step has ended."""
        step = self._step
        self._forget()
        if step is not None:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                self._keep(step.stalled(), lane)

    def _forget(self) -> None:
        self._step = None
        self.asked = frozenset()

    def _zeroed(self, step: OptimizerStep) -> Detection | None:
        """The gradients of a step, where a factor of 0 that was computed from an infinity has made them 0."""
        rows = self._context.rows
        for number, (_, gradient) in enumerate(step.gradients if step.is_zero else ()):
            row = rows.get(rows.writer_of(gradient))
            kept = None if row is None or row.operator.base not in _SCALING else rows.operands_at(row.ordinal)
            factors: Any = [] if kept is None else kept.held[1:2]
            factors = factors[0] if factors and isinstance(factors[0], list) else factors
            factor = next((f for f in factors if isinstance(f, Held)), None)
            dtype = None if factor is None else self._infinity(factor)
            if dtype is not None:
                return step.zeroed(dtype, number, row)
        return None

    def _infinity(self, factor: Held) -> str | None:
        """The dtype of the infinity that a factor of 0 was computed from; None of any other factor."""
        rows = self._context.rows
        value = rows.value_of(factor)
        waiting = [factor] if value is not None and bool((value == 0).all()) else []
        for _ in range(_HOPS):
            if not waiting:
                break
            held = waiting.pop(0)
            value = rows.value_of(held)
            if value is not None and value.is_floating_point() and bool(torch.isinf(value).any()):
                return dtype_name(value.dtype)
            kept = rows.operands_at(held.writer)
            waiting += [] if kept is None else [h for h in kept.held if isinstance(h, Held)]
        return None


def _added(operator: Operator, args: Any, kwargs: Any, number: int, target: Tensor) -> Any:
    """What an operation in place adds to one of its targets; None where that is not known."""

    def of(position: int) -> Any:
        value = args[position] if position < len(args) else None
        value = value[number] if isinstance(value, (list, tuple)) else value
        if isinstance(value, torch.Tensor):
            return value.detach().float()
        return float(value) if isinstance(value, (int, float)) else None

    one, other = of(1), of(2)
    match operator.base:
        case "add_" | "sub_" if one is not None:
            return one * (float(kwargs.get("alpha", 1)) * (-1 if operator.base == "sub_" else 1))
        case "addcdiv_" | "addcmul_" if one is not None and other is not None:
            factor = kwargs.get("value", of(3))
            both = one / other if operator.base == "addcdiv_" else one * other
            return both * (1.0 if factor is None else float(factor))
        case "mul_" if one is not None:
            return target.detach().float() * (one - 1)
        case _:
            return None
