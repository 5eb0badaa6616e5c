"""What a trace feeds the optimizer-update detector with: the events of a step, and the operands of those before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.operands import dtype_name
from whynan.capture.torch.optimizer_updates import OptimizerStep
from whynan.capture.torch.rows import Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.lanes import Lane
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.optimizer_updates import Detection
    from whynan.capture.torch.rows import Row

_ADDING: Final = frozenset("add_ sub_ addcdiv_ addcmul_ mul_".split())
"""How optimizers change a parameter, by what each adds to it."""
_OTHERS: Final = frozenset(
    "copy_ lerp_ div_ set_ fill_ zero_ _fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_".split()
)
"""What may change it besides, by how much is not known."""
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
        self.asked = _ADDING | _OTHERS if self._parameters else frozenset[str]()

    def begin(self, optimizer: Any, lane: Lane) -> None:
        """A step is about to consume gradients."""
        self._step = None
        if optimizer is None or not (self._gradients or self._parameters):
            return
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            step = OptimizerStep(optimizer, self._context.names)
            if self._gradients:
                self._keep(step.steep() or self._zeroed(step), lane)
            if self._parameters:
                step.follow_weights()
                self._step = step

    def add(self, row: Row, operator: Operator, args: Any, kwargs: Any) -> None:
        """An event of a step that may have changed a weight."""
        step = self._step
        if step is None or not step.weights:
            return
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            targets: list[Any] = list(args[0]) if isinstance(args[0], (list, tuple)) else [args[0]]
            for number, target in enumerate(targets):
                if step.follows(target):
                    step.change(target, _added(operator, args, kwargs, number, target), row)

    def end(self, lane: Lane) -> None:
        """The step has ended."""
        step, self._step = self._step, None
        if step is not None:
            with torch._C._DisableTorchDispatch(), torch.no_grad():
                self._keep(step.stalled(), lane)

    def _zeroed(self, step: OptimizerStep) -> Detection | None:
        """The gradients of a step, where a factor of 0 that was computed from an infinity has made them 0."""
        rows = self._context.rows
        for number, (_, gradient) in enumerate(step.gradients if step.is_zero else ()):
            row = rows.get(rows.writer_of(gradient))
            kept = None if row is None or row.operator.base not in _SCALING else rows.of(row.ordinal)
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
            kept = rows.of(held.writer)
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
