"""Copies of what an operation is about to overwrite, taken where an explanation may ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch import experiments
from whynan.capture.torch.planes import FLOATS, readable

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.operators import Operator

SMALL = 1 << 16
COPY_LIMIT = 1 << 24
FEW_ELEMENTS = 1 << 8

_current_node = torch._C._current_autograd_node


def in_step(context: TraceContext, operator: Operator, args: Any) -> bool:
    """Whether an optimizer's operation has its operand copied: a small one, or any in a second run."""
    return context.copy_all or (operator.writes_first and args[0].numel() <= FEW_ELEMENTS)


def before(context: TraceContext, operator: Operator, args: Any, kwargs: Any) -> dict[int, Tensor] | None:
    """What the operation is about to overwrite, by tensor id."""
    everything = context.copy_all
    if context.stepping and operator.writes_first:
        target = args[0]
        return {id(target): target.clone()} if target.dtype in FLOATS and readable(target) else None
    if not everything and operator.foreach:
        return None
    hot = context.stepping or _current_node() is not None
    limit = SMALL if operator.pointwise and hot else COPY_LIMIT
    copies: dict[int, Tensor] = {}
    for key in operator.mutable:
        value: Any = kwargs.get(key) if isinstance(key, str) else args[key] if key < len(args) else None
        for target in experiments.tensors_in(value):
            if target.dtype not in FLOATS or not readable(target):
                continue
            if everything or target.numel() * target.element_size() <= limit:
                copies[id(target)] = target.clone()
    return copies
