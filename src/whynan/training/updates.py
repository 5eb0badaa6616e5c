"""What a watch feeds the optimizer-update detector with, and the steps without gradients that it has looked into."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.names import Names
from whynan.capture.torch.provenance.operands import dtype_name
from whynan.capture.torch.shadow_memory import local
from whynan.capture.torch.silent.detectors import DamageLog
from whynan.capture.torch.silent.optimizer_updates import STEEP, OptimizerStep, rate_of
from whynan.capture.torch.sinks.gradients import Fault, gather_evidence, parameters_of
from whynan.capture.torch.sites import Sites
from whynan.traces import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.capture.torch.silent.optimizer_updates import Detection, Weight
    from whynan.capture.torch.sinks.gradients import Losses
    from whynan.training.read_back import StepStatistics

FIRST: Final = 32
"""The first step that is looked at for weights that do not move; then the one at twice its number, and so on."""
_LOOKS: Final = 3
"""So often the steps of a training are looked into whose gradients are all 0, and nothing is found."""
_PEAKS: Final = 8
"""So often those in float16 whose loss is the greatest so far; and the 2nd, 4th, 8th and so on, without end."""


class WatchDetectors:
    """The silent damage of watched steps; of `reads` what rules ask for, and `scope` gives the allowances in force.

    `look_into` is given a step whose gradients are all 0 though its loss is not, or one in float16, where an Inf that
    goes out as 0 leaves nothing bad, and tells whether it found harm.
    """

    def __init__(self, reads: frozenset[str], scope: Callable[[], tuple[int, ...]]) -> None:
        self.log = DamageLog()
        self.names = Names()
        self.look_into: Callable[[Fault], bool] | None = None
        self._gradients = "gradients" in reads
        self._parameters = "parameters" in reads
        self._scope = scope
        self._sites = Sites()
        self._norm: tuple[Tensor, int] | None = None
        self._doubted: Fault | None = None
        self._zero: set[int] = set()
        self._looks = _LOOKS
        self._peaks = _PEAKS
        self._greatest = -math.inf
        self._step: OptimizerStep | None = None

    # -- what a step consumes ----------------------------------------------------------------------------------------

    def clip(self, norm: Any) -> None:
        """The program is about to clip its gradients by this norm, which is not read."""
        if self._gradients and isinstance(norm, torch.Tensor) and norm.numel() == 1 and local(norm) is norm:
            self._norm = norm.detach(), self._sites.current_site(2)

    def take_norm(self) -> tuple[Tensor, int] | None:
        """By which norm, and where, the gradients of the step were clipped that is about to be made."""
        norm, self._norm = self._norm, None
        return norm

    def consume(
        self, optimizer: Any, number: int, reading: StepStatistics, clipped: tuple[Tensor, int] | None, losses: Losses
    ) -> None:
        """A step is about to be made of gradients of which this was read."""
        norm = reading.norm
        if norm is None:
            return
        if self._is_doubtful_half(optimizer, number, reading):
            self._doubted = Fault(optimizer, number, gather_evidence(optimizer, losses))
        if not self._gradients:
            return
        known = id(optimizer) in self._zero
        if norm != 0:
            self._zero.discard(id(optimizer))
        if 0 < norm <= STEEP:
            return
        step = OptimizerStep(optimizer, self.names)
        self._keep(step.steep(), number, self._sites.current_site())
        if not step.is_zero:
            return
        self._zero.add(id(optimizer))
        if clipped is not None and math.isinf(float(clipped[0])):
            self._keep(step.zeroed(dtype_name(clipped[0].dtype)), number, clipped[1])
        elif not known and self._looks and any(reading.losses):
            self._looks -= 1
            self._doubted = Fault(optimizer, number, gather_evidence(optimizer, losses))

    def _is_doubtful_half(self, optimizer: Any, number: int, reading: StepStatistics) -> bool:
        """Whether a step in float16, or of a scaled loss, is one of those that are looked into."""
        loss = max(reading.losses, default=-math.inf)
        is_peak = loss > self._greatest and self._peaks > 0
        self._greatest = max(self._greatest, loss)
        if self.look_into is None or not (is_peak or number & (number - 1) == 0):
            return False
        if reading.scale is None and all(p.dtype is not torch.float16 for p in parameters_of(optimizer)):
            return False
        self._peaks -= is_peak
        return True

    def look(self) -> None:
        """Have a step looked into that is about to be made, if there is doubt about it."""
        doubted, self._doubted = self._doubted, None
        if doubted is not None and self.look_into is not None and self.look_into(doubted):
            self.look_into = None

    # -- what it moves -----------------------------------------------------------------------------------------------

    def begin(self, optimizer: Any, number: int) -> None:
        """A step is about to be made."""
        self._step = None
        if self._parameters and number >= FIRST and number & (number - 1) == 0:
            self._step = OptimizerStep(optimizer, self.names)
            self._step.follow_weights()

    def end(self, optimizer: Any, number: int) -> None:
        """A step has been made."""
        step, self._step = self._step, None
        if step is None or step.optimizer is not optimizer:
            return
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for weight in [w for w in step.weights.values() if w.is_unmoved]:
                step.change(weight.parameter, _update(optimizer, weight))
            self._keep(step.stalled(number), number, self._sites.current_site())

    def forget(self) -> None:
        """Hold on to nothing of the program's."""
        self._norm = self._doubted = self._step = None

    def _keep(self, detection: Detection | None, number: int, site: int) -> None:
        if detection is not None:
            self.log.add(self._sites.key(site), detection, self._scope(), lambda: self._event(number, site))

    def _event(self, number: int, site: int) -> Event:
        where, library = self._sites.resolve(site, None)
        return Event(0, None, "optimizer", where, library, step=number)


def _update(optimizer: Any, weight: Weight) -> Tensor | None:
    """What the step that was made has added to a weight, in float32; None of an optimizer other than SGD and Adam."""
    values, group = weight.parameter.detach().float(), weight.group
    state, gradient, rate = optimizer.state.get(weight.parameter, {}), weight.parameter.grad, rate_of(group)
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW) and "exp_avg" in state:
        decoupled = group.get("decoupled_weight_decay", type(optimizer) is torch.optim.AdamW)
        return -rate * (_adam(state, group) + group["weight_decay"] * values * decoupled)
    scaled = getattr(optimizer, "grad_scale", None) is not None
    if type(optimizer) is not torch.optim.SGD or gradient is None or scaled:
        return None
    moved = gradient.float() + group["weight_decay"] * values
    kept = state.get("momentum_buffer")
    if kept is not None:
        moved = moved + group["momentum"] * kept.float() if group["nesterov"] else kept.float()
    return -rate * moved


def _adam(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    first, second = group["betas"]
    step = float(state["step"])
    squares = state.get("max_exp_avg_sq", state["exp_avg_sq"]).float() / (1 - second**step)
    return state["exp_avg"].float() / (1 - first**step) / (squares.sqrt() + group["eps"])
