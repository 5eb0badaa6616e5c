"""A bad step that a fused optimizer passes over by itself, on its device: what ``found_inf`` is for.

A ``GradScaler`` has a fused optimizer pass over a step whose gradients overflow by a number on the device, which its
kernel reads. Where that is 1 weights and states stay as they are, and the count of its steps is put back; where it is 0
the kernel does what it does without one, bit for bit. What a scaler has said stays: a step is passed over where either
says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.ranks import is_one_of_several

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_HONOURING: Final = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)
_NOTHING: Final = object()


def open_because(optimizer: Any, gradients: Sequence[Tensor]) -> str:
    """Why a bad step of an optimizer cannot be passed over on its device; empty where it can."""
    name = type(optimizer).__name__
    if not isinstance(optimizer, _HONOURING) or not _is_torchs(optimizer):
        return f"{name} cannot pass over a bad step by itself, as torch.optim's SGD, Adam, AdamW and Adagrad can"
    fused = all(group.get("fused") for group in optimizer.param_groups)
    if not fused or not getattr(optimizer, "_step_supports_amp_scaling", False):
        return f"{name} cannot pass over a bad step by itself without fused=True"
    if len({g.device for g in gradients}) > 1:
        return f"{name} has gradients on several devices"
    if is_one_of_several():
        # a loss is that of one process
        return "several processes must pass over a step together"
    return ""


def _is_torchs(optimizer: Any) -> bool:
    """Whether the step of an optimizer is that of torch, and not of a class that was made from it."""
    return str(getattr(type(optimizer).step, "__module__", "")).startswith("torch.optim.")


def begins(optimizer: Any) -> bool:
    """Whether SGD is to make its momentum: where it passes over that step, torch leaves it uninitialised."""
    if not isinstance(optimizer, torch.optim.SGD):
        return False
    return any(
        group["momentum"] != 0 and p.grad is not None and optimizer.state.get(p, {}).get("momentum_buffer") is None
        for group in optimizer.param_groups
        for p in group["params"]
    )


class Gates:
    """The optimizers that are told to pass over the step that they are in, if it is bad."""

    def __init__(self) -> None:
        self._closed: dict[int, tuple[Any, Tensor, Any]] = {}

    def close(self, optimizer: Any, bad: Tensor) -> None:
        """Have a step be passed over where `bad` is 1, until `open`."""
        theirs = getattr(optimizer, "found_inf", None)
        both = bad if theirs is None else torch.maximum(bad, theirs.to(bad, non_blocking=True))
        self._closed[id(optimizer)] = optimizer, both, vars(optimizer).get("found_inf", _NOTHING)
        optimizer.found_inf = both

    def open(self, optimizer: Any) -> None:
        """Put back what an optimizer was told before."""
        _, ours, before = self._closed.pop(id(optimizer), (None, None, None))
        if ours is None or vars(optimizer).get("found_inf") is not ours:
            return
        if before is _NOTHING:
            del optimizer.found_inf
        else:
            optimizer.found_inf = before

    def open_all(self) -> None:
        """The same for each."""
        for optimizer, *_ in list(self._closed.values()):
            self.open(optimizer)
