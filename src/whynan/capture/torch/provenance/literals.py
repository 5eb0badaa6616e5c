"""Literals that pass: the fast path of a pointwise operation, and a NaN that meets an infinity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.arrays import SEARCHED, computable, is_bad, readable, strided
from whynan.capture.torch.provenance.labels import PLANE_DTYPE

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.operators import Operator


SUMS = frozenset("add sub _to_copy clone".split())
"""What an infinity passes as it is: nothing else of these operations' operands can make one of the same sign."""


def passed(
    context: TraceContext, operator: Operator, args: Any, kwargs: Any, written: list[Tensor]
) -> tuple[Tensor, int] | None:
    """The labels of an event's output, all of one literal, and that literal's set; None where it is less simple.

    Every infinity of the output lies where an operand has that literal's infinity, nothing is NaN, and no other operand
    is bad.
    """
    if not operator.pointwise or operator.mutable or operator.foreach or operator.value_free:
        return None
    if operator.reduces or len(written) != 1 or operator.base not in SUMS:
        return None
    if any(isinstance(v, float) and v - v != 0 for v in (*args, *kwargs.values())):
        return None
    output = written[0]
    if not readable(output) or output.dtype not in SEARCHED:
        return None
    ends = [float(v) for v in torch.aminmax(output)]
    if any(v != v for v in ends):
        return None
    only = 0
    signs: set[float] = set()
    known: Tensor | None = None
    for tensor in (*args, *kwargs.values()):
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            continue
        state = context.state_of(tensor)
        if state is None or state.plane is None:
            if not readable(tensor) or is_bad(tensor):
                return None
            continue
        if not state.only or not context.labels.is_literal(state.only) or only not in (0, state.only):
            return None
        only = state.only
        signs |= {end for end in (float(v) for v in torch.aminmax(computable(tensor))) if math.isinf(end)}
        here = (computable(tensor).abs() == math.inf) & (strided(state.plane, state.itemsize, tensor) != 0)
        known = here if known is None else known | here
    # an infinity of a sign that no operand has is not theirs
    if known is None or (operator.base != "sub" and not {end for end in ends if math.isinf(end)} <= signs):
        return None
    bad = torch.zeros((), dtype=torch.bool, device=output.device)
    for end in ends:
        if math.isinf(end):
            bad = bad | (output == end)
    if bad.shape != output.shape or bool((bad > known).any()):
        return None
    return bad.to(PLANE_DTYPE).mul_(only), only
