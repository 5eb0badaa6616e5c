"""The steps that optimizers were about to make in a run again, and the verdict on another argument by their updates."""

# pyright: basic

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from whynan.capture.torch.interposition.wrappers import StepHooks
from whynan.capture.torch.sinks.gradients import is_finite, parameters_of
from whynan.floats import format_value
from whynan.records import FixVerdict
from whynan.records.report import StandIn
from whynan.training.step_checkpoint import LIMIT
from whynan.verify.in_place.live_objects import instances
from whynan.verify.verdict import BOUND

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from torch import Tensor

    from whynan.records.intents import FixKind
    from whynan.verify.in_place.live_objects import LiveArgument

_SMALLER, _LARGER = 0.0625, 16.0
"""The gradients of the step times these, and once others of their size, are what an argument was not chosen on."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One step: the optimizer, and a copy of it and the gradients as they were before."""

    optimizer: Any
    before: Any
    gradients: Sequence[Tensor | None]


class OptimizerSteps:
    """The last step of each optimizer in which nothing was bad before it."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}

    @contextmanager
    def heard(self) -> Generator[None]:
        """Keep what each step is about to be made of while the block runs."""
        hooks = StepHooks(lambda: False)
        hooks.install()
        hooks.before = lambda optimizer, _args, _kwargs: self._keep(optimizer)
        try:
            yield
        finally:
            hooks.remove()

    def of(self, cls: str) -> tuple[Any, ...]:
        """The optimizers of a class, in the order of their first steps."""
        return instances((step.optimizer for step in self._steps.values()), cls)

    def failing(self, cls: str) -> tuple[Any, ...]:
        """The optimizers of a class whose step gives NaN or Inf."""
        return tuple(one for one in self.of(cls) if self._fails(self._steps[id(one)]))

    def verdict(self, live: LiveArgument, kind: FixKind) -> FixVerdict:
        """The verdict on an argument of optimizers, an epsilon, by the updates that it gives."""
        del kind
        try:
            return _verdict([self._steps[id(one)] for one in live.objects], live)
        except (RuntimeError, TypeError, ValueError, KeyError) as error:
            return _unknown(f"its step could not be made on copies ({error})")

    def _fails(self, step: _Step) -> bool:
        try:
            return not np.isfinite(_updates([step])).all()
        except (RuntimeError, TypeError, ValueError, KeyError):
            return False

    def _keep(self, optimizer: Any) -> None:
        """Copy what an optimizer is about to step with, unless that is too much or bad already."""
        try:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                parameters = list(parameters_of(optimizer))
                state = [v for one in optimizer.state.values() for v in one.values() if isinstance(v, torch.Tensor)]
                held = [t for t in (*parameters, *(p.grad for p in parameters), *state) if t is not None]
                if sum(t.numel() * t.element_size() for t in held) > LIMIT or not all(map(is_finite, held)):
                    return
                gradients = [None if p.grad is None else p.grad.detach().clone() for p in parameters]
                self._steps[id(optimizer)] = _Step(optimizer, copy.deepcopy(optimizer), gradients)
        except Exception:
            # the program's step comes first; without its copies nothing is proved
            self._steps.pop(id(optimizer), None)


def _verdict(steps: Sequence[_Step], argument: LiveArgument) -> FixVerdict:
    """Cured, kept, not invented: in these steps, and in the same ones of other gradients."""
    if any(not _step_of(s.optimizer).__module__.startswith("torch.optim") for s in steps):
        return _unknown("its step is the program's own")
    own = _Updates.of(steps, argument)
    others = [_Updates.of(list(other), argument) for other in zip(*map(_fresh, steps), strict=True)]
    if not own.bad.any():
        return _unknown("the step that was kept does not fail by itself")
    healthy, (moved, most) = int((~own.bad).sum()), own.moves()

    def told(status: Any, why: str, *, finite: bool = True) -> FixVerdict:
        counted = {"healthy_elements": healthy, "healthy_worse": moved, "max_rel": most} if healthy else {}
        return FixVerdict(status=status, forward_finite=finite, why=why, **counted)

    if left := int((~np.isfinite(own.new)).sum()):
        return told("rejected", f"still NaN or Inf in {left:,} of {int(own.bad.sum()):,} updates", finite=False)
    if not all(np.isfinite(other.new).all() for other in others):
        return told("rejected", "NaN or Inf in updates of other gradients")
    share = f"{moved:,} of {healthy:,} healthy updates, by up to {most:.3g} relative"
    if most >= BOUND:
        return told("rejected", f"changes {share}")
    wrong, finite = 0, f"the update is finite in all {int(own.bad.sum()):,} elements in which it was not"
    for each, where in ((own, ""), *((other, ", of other gradients") for other in others)):
        if (example := each.invented()) is not None:
            wrong += 1
            finite = f"gives an update of {format_value(example[0], digits=3)} where the exact one is "
            finite += format_value(example[1], digits=3) + where
            if abs(example[0]) > 2 * max(each.largest, np.nan_to_num(abs(example[1]), posinf=0.0)):
                return told("rejected", finite)
    if not (moved or wrong or any(other.moves()[0] for other in others)):
        found = told("verified", f"{finite}; none of {healthy:,} healthy updates moves")
        count = int(np.isnan(own.exact).sum())
        zero = StandIn(output=0, lack="undefined", least=0.0, greatest=0.0, count=count, total=own.old.size)
        return found.model_copy(update={"status": "guarded", "stand_ins": (zero,)}) if count else found
    return told("distorting", f"moves {share if moved else 'some updates of other gradients'}; {finite}")


@dataclass(frozen=True, slots=True)
class _Updates:
    """The updates of steps as they are, with another argument, and, of those that are bad, as float64 gives them."""

    old: np.ndarray
    new: np.ndarray
    exact: np.ndarray

    @classmethod
    def of(cls, steps: Sequence[_Step], argument: LiveArgument) -> _Updates:
        """Those of some steps."""
        old = _updates(steps)
        return cls(old, _updates(steps, argument), _updates(steps, dtype=torch.float64)[~np.isfinite(old)])

    @property
    def bad(self) -> np.ndarray:
        """Which are NaN or Inf."""
        return ~np.isfinite(self.old)

    @property
    def largest(self) -> float:
        """The largest healthy one."""
        return float(np.abs(self.old[~self.bad]).max(initial=0.0))

    def moves(self) -> tuple[int, float]:
        """How many healthy updates are others, and by how much of themselves at most."""
        before, after = self.old[~self.bad], self.new[~self.bad]
        off = np.abs(after - before)
        return int((off > 0).sum()), float((off / np.where(off > 0, np.abs(before), 1.0)).max(initial=0.0))

    def invented(self) -> tuple[float, float] | None:
        """The largest of those that were bad and are not the exact one now, and the exact one.

        0 / 0 has no value; 0 is what an optimizer gives where there is no gradient.
        """
        given, exact = self.new[self.bad], self.exact
        wrong = np.where(np.isnan(exact), given != 0, ~(np.abs(given - exact) <= BOUND * np.abs(exact)))
        at = int(np.argmax(np.where(wrong, np.abs(given), -1.0))) if wrong.any() else None
        return None if at is None else (float(given[at]), float(exact[at]))


def _updates(
    steps: Sequence[_Step], argument: LiveArgument | None = None, dtype: torch.dtype | None = None
) -> np.ndarray:
    """The updates of steps, of parameters of 0, so that no rounding of a weight hides one."""
    moved: list[Tensor] = []
    for step in steps:
        made = copy.deepcopy(step.before)
        gradients = iter(step.gradients)
        for group in made.param_groups:
            group |= {name: value for name, value in (("foreach", False), ("fused", None)) if name in group}
            group |= {} if argument is None else {argument.name: argument.value}
            decay = 0.0 if group.get("decoupled_weight_decay") else group.get("weight_decay") or 0.0
            for parameter in group["params"]:
                gradient, kind = next(gradients), dtype or parameter.dtype
                if gradient is None:
                    continue
                # what decays the weight is a part of the gradient
                decayed = parameter.detach().to(kind) * (-decay if group.get("maximize") else decay)
                given = gradient.to(kind) + decayed if decay else gradient.to(kind, copy=True)
                parameter.data = torch.zeros_like(parameter, dtype=kind)
                parameter.grad = given
                state = made.state.get(parameter, {})
                for name, value in state.items():
                    if isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.is_floating_point():
                        state[name] = value.to(kind)
                moved.append(parameter)
        with torch.enable_grad():
            _step_of(made)(made)
    return np.concatenate([p.detach().cpu().double().numpy().ravel() for p in moved])


def _step_of(optimizer: Any) -> Any:
    """What makes a step, without the hooks around it."""
    step: Any = type(optimizer).step
    return getattr(step, "__wrapped__", step)


def _fresh(step: _Step) -> Iterator[_Step]:
    """The step of gradients that a value was not chosen on; 0 where its own are."""
    random = torch.Generator().manual_seed(0)

    def drawn(g: Tensor) -> Tensor:
        return torch.randn(g.shape, generator=random, device="cpu").to(g) * g.float().abs().mean().to(g) * (g != 0)

    for other in (lambda g: g * _SMALLER, lambda g: g * _LARGER, drawn):
        yield replace(step, gradients=[None if g is None else other(g) for g in step.gradients])


def _unknown(why: str) -> FixVerdict:
    return FixVerdict(status="unverified", why=why)
