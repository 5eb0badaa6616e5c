"""Weights of low precision that no step moves, though its update is not 0: it rounds away, step after step.

A few elements of each are kept from the first step on and looked at after 32, 64, 128 ... steps; only where they have
not moved is that one step looked at in full.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor

FIRST: Final = 32
"""After so many steps it is looked whether anything has moved; then after twice as many, and so on."""
_ELEMENTS: Final = 16
"""So many of each parameter are kept."""
_BYTES: Final = 64 << 20
"""So much of the weights is copied for the one step that is looked at."""
_MOSTLY: Final = 0.5
"""The part of an optimizer's elements of low precision that stands still where it is told."""
_FRACTION_BITS: Final = {torch.bfloat16: 7, torch.float16: 10}
_KINDS: Final = (torch.nn.Parameter, torch.Tensor)
_READ: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Stalled:
    """Parameters that stand still: the largest of them, how many elements of how many, and the numbers of it."""

    parameter: Tensor
    concerned: int
    total: int
    numbers: dict[str, float]


@dataclass
class _Known:
    """What is kept of one optimizer: some elements of its weights of low precision as they were at the first step."""

    optimizer: weakref.ref[Any]
    parameters: list[weakref.ref[Tensor]]
    first: Tensor
    rates: list[float]
    steps: int = 0
    check: int = FIRST
    done: bool = False
    looked_at: list[tuple[Tensor, Tensor, dict[str, Any]]] = field(default_factory=lambda: [])
    """What may stand still, as it was before this step, with its group."""


class Stalling:
    """The weights of low precision of each optimizer."""

    def __init__(self) -> None:
        self._known: dict[int, _Known | None] = {}

    def begins(self, optimizer: Any) -> None:
        """A step is about to be made."""
        key = id(optimizer)
        if key not in self._known:
            self._known[key] = _keep(optimizer)
        known = self._known[key]
        if known is None or known.done or known.optimizer() is not optimizer:
            return
        known.steps += 1
        if known.steps == known.check:
            known.check *= 2
            known.looked_at = _standing(optimizer, known)

    def made(self, optimizer: Any) -> Stalled | None:
        """A step has been made: what it should have moved, and has not."""
        known = self._known.get(id(optimizer))
        if known is None or not known.looked_at:
            return None
        looked_at, known.looked_at = known.looked_at, []
        with torch.no_grad():
            still = [
                (p, group, *away)
                for p, before, group in looked_at
                if torch.equal(p, before) and (away := _rounded_away(optimizer, p, group, known.steps)) is not None
            ]
        if not any(matters for *_, matters in still):
            return None
        known.done = True
        parameter, group, update, _ = max(still, key=lambda s: (s[3], s[0].numel()))
        size = parameter.detach().abs()
        size = size[size > 0]
        numbers = {
            "rate": float(group["lr"]),
            "update": update,
            "least": float(size.min()) if size.numel() else 0.0,
            "parameters": float(len(still)),
            "steps": float(known.steps),
        }
        return Stalled(parameter, sum(p.numel() for p, *_ in still), _total(known), numbers)

    def forget(self) -> None:
        """Hold on to no weight."""
        self._known.clear()


def _keep(optimizer: Any) -> _Known | None:
    """Some elements of each weight of low precision; None where there is none, or an optimizer may keep the rest of it.

    One that adds up what was rounded away, or rounds at random, is not torch's own.
    """
    if not type(optimizer).__module__.startswith("torch.optim"):
        return None
    groups: list[dict[str, Any]] = optimizer.param_groups
    found = [p for g in groups for p in g["params"] if p.requires_grad and p.dtype in _FRACTION_BITS and is_plain(p)]
    found = [p for p in found if p.device == found[0].device]
    if not found:
        return None
    rates = [_rate(g) for g in groups]
    return _Known(weakref.ref(optimizer), [weakref.ref(p) for p in found], _sample(found), rates)


def _sample(parameters: list[Tensor]) -> Tensor:
    return torch.cat([p.data.as_strided((min(_ELEMENTS, p.numel()),), (1,)) for p in parameters])


def _total(known: _Known) -> int:
    return sum(p.numel() for reference in known.parameters if (p := reference()) is not None)


def _rate(group: dict[str, Any]) -> float:
    rate = group.get("lr")
    return float(rate) if isinstance(rate, (int, float, torch.Tensor)) else 0.0


def _standing(optimizer: Any, known: _Known) -> list[tuple[Tensor, Tensor, dict[str, Any]]]:
    """The parameters of which nothing that was kept has moved, each with a copy; none where few are, or none should."""
    parameters = [p for reference in known.parameters if (p := reference()) is not None]
    groups = optimizer.param_groups
    rates, known.rates = known.rates, [_rate(g) for g in groups]
    if len(parameters) < len(known.parameters) or len(rates) != len(groups):
        known.done = True
        return []
    owners = {id(p): number for number, g in enumerate(groups) for p in g["params"]}
    equal = (_sample(parameters) == known.first).tolist()
    still: list[tuple[Tensor, dict[str, Any]]] = []
    for p in parameters:
        count = min(_ELEMENTS, p.numel())
        own, equal = equal[:count], equal[count:]
        number = owners.get(id(p))
        if all(own) and number is not None and _is_meant(groups[number], rates[number]) and _is_graded(p):
            still.append((p, groups[number]))
    if sum(p.numel() for p, _ in still) < _MOSTLY * sum(p.numel() for p in parameters):
        return []
    return _copied(still)


def _copied(still: list[tuple[Tensor, dict[str, Any]]]) -> list[tuple[Tensor, Tensor, dict[str, Any]]]:
    left, copied = _BYTES, list[tuple["Tensor", "Tensor", dict[str, Any]]]()
    for p, group in still:
        left -= p.numel() * p.element_size()
        if left >= 0:
            copied.append((p, p.detach().clone(), group))
    return copied


def _is_meant(group: dict[str, Any], before: float) -> bool:
    """Whether a learning rate is one to learn with: it does not rise any more, and has not been taken down."""
    rate = _rate(group)
    highest = group.get("initial_lr", rate)
    highest = float(highest) if isinstance(highest, (int, float, torch.Tensor)) else rate
    return 0 < rate <= before and rate >= highest / 2


def _is_graded(parameter: Tensor) -> bool:
    gradient = parameter.grad
    return gradient is not None and is_plain(gradient) and bool(gradient.any())


def _rounded_away(optimizer: Any, parameter: Tensor, group: dict[str, Any], steps: int) -> tuple[float, bool] | None:
    """The greatest part of an update that moves no element, and whether it matters; None where it is not known.

    It matters if as many of them as there were steps would have moved a weight to the next number of its dtype.
    """
    update = _update(optimizer, parameter, group)
    if update is None:
        return None
    weights = parameter.detach()
    wide = weights.float()
    if not bool(((wide + update).to(weights.dtype) == weights).all()):
        return None
    ulp = torch.ldexp(torch.ones_like(wide), torch.frexp(wide).exponent - 1 - _FRACTION_BITS[weights.dtype])
    matters = bool((update.abs() * steps >= ulp / 2).any())
    return float(update.abs().max()), matters


def _update(optimizer: Any, parameter: Tensor, group: dict[str, Any]) -> Tensor | None:
    """What the step that was made has added to a parameter, in float32; None where that is not known."""
    state, gradient, rate = optimizer.state.get(parameter, {}), parameter.grad, _rate(group)
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW) and "exp_avg" in state:
        decoupled = group.get("decoupled_weight_decay", type(optimizer) is torch.optim.AdamW)
        return -rate * _adam(state, group, parameter.detach().float(), decoupled=decoupled)
    scaled = getattr(optimizer, "grad_scale", None) is not None
    if type(optimizer) is not torch.optim.SGD or gradient is None or scaled:
        return None
    moved = gradient.float() + group["weight_decay"] * parameter.detach().float()
    kept = state.get("momentum_buffer")
    if kept is not None:
        moved = moved + group["momentum"] * kept.float() if group["nesterov"] else kept.float()
    return -rate * moved


def _adam(state: dict[str, Any], group: dict[str, Any], weights: Tensor, *, decoupled: bool) -> Tensor:
    first, second = group["betas"]
    step = float(state["step"])
    squares = state.get("max_exp_avg_sq", state["exp_avg_sq"]).float() / (1 - second**step)
    moved = state["exp_avg"].float() / (1 - first**step) / (squares.sqrt() + group["eps"])
    return moved + group["weight_decay"] * weights if decoupled else moved


def is_plain(tensor: Any) -> bool:
    """Whether a tensor is numbers in memory, each element once, and nothing else."""
    return (
        type(tensor) in _KINDS
        and tensor.layout is torch.strided
        and tensor.dtype in _READ
        and not tensor.is_meta
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue]
        and tensor.numel() > 0
        and tensor.data_ptr() != 0
        and _is_dense(tensor)
    )


def _is_dense(tensor: Tensor) -> bool:
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.data.permute(order).is_contiguous()
