"""What a replay begins with: weights and buffers that an earlier step, or something before it, has left NaN or Inf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.judging import parameters_of
from whynan.capture.torch.planes import local
from whynan.floats import format_value
from whynan.records import Note

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.judging import Fault
    from whynan.capture.torch.names import Names


class Inherited:
    """What the parameters of an optimizer, and the buffers, were when the step that is run again began."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._parameters = {_storage(p) for p in parameters_of(fault.optimizer)} - {None}

    def named(
        self, tensor: Tensor, name: str | None, kind: str | None, names: Names
    ) -> tuple[str | None, str | None, Note | None]:
        """The name and the kind of a tensor, and since when it is bad; nothing of what is neither weight nor buffer."""
        if _storage(tensor) in self._parameters:
            optimizer, step = self.fault.optimizer, self.fault.step
            before = Note.of("bad_before", step=step)
            since = (
                Note.of("spoilt_during", step=step - 1, optimizer=described(optimizer, tensor)) if step > 1 else before
            )
            return name or names.leaf_name(tensor), kind or "parameter", since
        return name, kind, Note.of("bad_before", step=self.fault.step) if kind in ("parameter", "buffer") else None


def described(optimizer: Any, parameter: Tensor) -> str:
    """An optimizer and the numbers that it updates a parameter with: ``Adam, lr 0.1, eps 0``."""
    groups = (g for g in optimizer.param_groups if any(_storage(p) == _storage(parameter) for p in g["params"]))
    settings = [(name, value) for name, value in next(groups, {}).items() if name != "params" and _is_told(value)]
    # a factor of 0 is switched off; what keeps a denominator from 0 is not
    said = [f"{name} {_number(value)}" for name, value in settings if name == "eps" or value != 0]
    return ", ".join([type(optimizer).__name__, *said])


def state_at(optimizer: Any, parameter: Tensor) -> str:
    """What an optimizer keeps for the first bad element of a parameter: ``step 1, exp_avg 0``; empty if nothing."""
    state: Any = optimizer.state.get(parameter) or {}
    here = local(parameter)
    assert here is not None
    place = _first(here)
    said: list[str] = []
    for name, held in state.items() if isinstance(state, dict) else ():
        kept = local(held) if isinstance(held, torch.Tensor) else held
        if isinstance(kept, torch.Tensor) and kept.layout is torch.strided and not kept.is_complex():
            if kept.numel() == 1:
                said.append(f"{name} {_number(kept.item())}")
            elif kept.shape == here.shape:
                said.append(f"{name} {_number(kept[place].item())}")
        elif _is_told(kept):
            said.append(f"{name} {_number(kept)}")
    return ", ".join(said)


def _first(parameter: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in (~torch.isfinite(parameter.detach())).nonzero()[0])


def _is_told(value: object) -> bool:
    """Whether a setting is a number, or several; a switch is none."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    if isinstance(value, tuple):
        return bool(value) and all(map(_is_told, value))
    return type(value) in (int, float)


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_number(each) for each in value)})"
    return format_value(float(value))


def _storage(tensor: Tensor) -> int | None:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError, ValueError):
        return None
