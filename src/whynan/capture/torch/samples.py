"""How far a step moves the weights, from a sample of them that is chosen once; no device is waited for after that."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

PLACES: Final = 8
"""So many places are spread over all weights laid end to end."""
LONG: Final = 384
"""So many weights beside each other are read at a place."""
_WIDE: Final = (torch.float32, torch.float64)
_READ: Final = (torch.float16, torch.bfloat16, *_WIDE)
_LEAST: Final = 1e-12
"""A norm in float32 below this has lost digits, for the squares have."""
_KINDS: Final = (torch.nn.Parameter, torch.Tensor)


class _Spot(NamedTuple):
    """A run of weights: of which tensor, by its place in the optimizer, and which of its memory."""

    group: int
    place: int
    start: int
    length: int
    layout: tuple[Any, ...]
    counts: float
    """How many weights each one of it stands for."""


@dataclass
class _Plan:
    """What is read of the weights of one optimizer."""

    trained: int
    """How many of its parameters were trained as it was made."""
    spots: list[_Spot]
    places: list[tuple[int, int]]
    pointers: list[int]
    views: list[Tensor]
    roots: Tensor | None
    """Of how many weights each that is read stands for; None where it is one."""


class Samples:
    """A sample of the weights of each optimizer, read before its step and after it."""

    def __init__(self) -> None:
        self._plans: dict[int, tuple[Any, _Plan]] = {}

    def before(self, optimizer: Any, trained: int) -> Tensor | None:
        """The sample as it is now; None where there is nothing to read. `trained`: how many parameters are."""
        known = self._plans.get(id(optimizer))
        plan = known[1] if known is not None and known[0]() is optimizer else None
        views = None if plan is None or trained > plan.trained else _views(plan, optimizer)
        if views is None:
            views = self._planned(optimizer, trained).views
        return _read(views)

    def moved(self, optimizer: Any, before: Tensor) -> tuple[Tensor, Tensor] | None:
        """The norm of what the sample has moved by since, and of what it was; None where it is not to be found."""
        known = self._plans.get(id(optimizer))
        views = None if known is None else _views(known[1], optimizer)
        after = None if views is None else _read(views)
        if known is None or after is None or after.shape != before.shape:
            return None
        was, roots = _wide(before), known[1].roots
        step = _wide(after).sub_(was)
        if roots is not None:
            step.mul_(roots)
            was.mul_(roots)
        moved, whole = torch._foreach_norm([step, was])
        return moved, whole

    def forget(self) -> None:
        """Hold on to no weight."""
        self._plans.clear()

    def _planned(self, optimizer: Any, trained: int) -> _Plan:
        plan = _plan(optimizer, trained)
        plans, key = self._plans, id(optimizer)
        # it sees the memory of the weights, which is to go when they do
        plans[key] = weakref.ref(optimizer, lambda _: plans.pop(key, None)), plan
        return plan


def ratio_of(norms: tuple[Tensor, Tensor] | None) -> float | None:
    """The two norms of a step as one number, which waits for the device; None where the squares are out of range."""
    if norms is None:
        return None
    moved, was = float(norms[0]), float(norms[1])
    return moved / was if _LEAST < was < math.inf and moved < math.inf else None


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in _WIDE else tensor.float()


def _read(views: list[Tensor]) -> Tensor | None:
    return torch.cat(views) if views else None


def _views(plan: _Plan, optimizer: Any) -> list[Tensor] | None:
    """What is read, found again where a parameter has come to stand elsewhere; None where it is not the same."""
    groups = optimizer.param_groups
    try:
        tensors = [groups[group]["params"][index] for group, index in plan.places]
    except IndexError:
        return None
    pointers = [t.data_ptr() for t in tensors]
    if pointers != plan.pointers:
        if not all(is_plain(t) and _layout(t) == s.layout for t, s in zip(tensors, plan.spots, strict=True)):
            return None
        plan.pointers, plan.views = pointers, _seen(tensors, plan.spots)
    return plan.views


def _plan(optimizer: Any, trained: int) -> _Plan:
    """All weights of a small model, else some at evenly spaced places."""
    found = _readable(optimizer)
    total = sum(t.numel() for _, _, t in found)
    if len(found) <= PLACES and total <= PLACES * LONG:
        spots = [_Spot(group, index, 0, t.numel(), _layout(t), 1.0) for group, index, t in found]
        roots = None
    else:
        spots = list(_spread(found, _shares([t for _, _, t in found])))
        each = [math.sqrt(spot.counts) for spot in spots for _ in range(spot.length)]
        roots = torch.tensor(each, dtype=torch.float32, device=found[0][2].device)
    places = [(spot.group, spot.place) for spot in spots]
    tensors = [optimizer.param_groups[group]["params"][index] for group, index in places]
    return _Plan(trained, spots, places, [t.data_ptr() for t in tensors], _seen(tensors, spots), roots)


def _shares(tensors: list[Tensor]) -> list[float]:
    """How much of the places each tensor is to have: by its size, and by what it adds to the norm of all."""
    sizes = [t.numel() / sum(t.numel() for t in tensors) for t in tensors]
    norms = torch._foreach_norm([t.data for t in tensors])
    squares = [norm * norm for norm in torch.stack([n.float() for n in norms]).tolist()]
    whole = sum(squares)
    if not 0 < whole < math.inf:
        return sizes
    return [(size + square / whole) / 2 for size, square in zip(sizes, squares, strict=True)]


def _spread(found: Sequence[tuple[int, int, Tensor]], shares: list[float]) -> Iterator[_Spot]:
    """As many runs of each tensor as there are places in its share of them."""
    end, place = 0.0, 0
    for (group, index, tensor), share in zip(found, shares, strict=True):
        end += PLACES * share
        hits = 0
        while place < PLACES and place + 0.5 < end:
            place, hits = place + 1, hits + 1
        if not hits:
            continue
        size = tensor.numel()
        length = min(LONG, size // hits)
        # what has less than one place to itself stands for others like it too
        counts = size / length / (hits if PLACES * share >= 1 else PLACES * share)
        for hit in range(hits):
            start = (2 * hit + 1) * (size - length) // (2 * hits)
            yield _Spot(group, index, start, length, _layout(tensor), counts)


def _readable(optimizer: Any) -> list[tuple[int, int, Tensor]]:
    """The parameters that are trained and whose memory can be read, on the device that has the most of them."""
    found = [
        (g, i, p)
        for g, group in enumerate(optimizer.param_groups)
        for i, p in enumerate(group["params"])
        if is_plain(p) and p.requires_grad
    ]
    sizes: dict[Any, int] = {}
    for _, _, p in found:
        sizes[p.device] = sizes.get(p.device, 0) + p.numel()
    most = max(sizes, key=lambda device: sizes[device], default=None)
    return [(g, i, p) for g, i, p in found if p.device == most]


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


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _seen(tensors: list[Tensor], spots: list[_Spot]) -> list[Tensor]:
    # of `data`: a view of the parameter itself would keep `torch.utils.swap_tensors` from it
    return [
        t.data.as_strided((spot.length,), (1,), t.storage_offset() + spot.start)
        for t, spot in zip(tensors, spots, strict=True)
    ]
