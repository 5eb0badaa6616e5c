"""The steps that optimizers were about to make in a run again, and the verdict on another argument by their updates."""

# pyright: basic

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from whynan.capture.torch.interposition.wrappers import StepHooks
from whynan.capture.torch.sinks.gradients import is_finite, parameters_of
from whynan.floats import format_value
from whynan.records import FixVerdict
from whynan.records.report import StandIn
from whynan.training.step_checkpoint import LIMIT
from whynan.verify.verdict import BOUND

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from torch import Tensor

    from whynan.records.intents import FixKind
    from whynan.verify.in_place.live_objects import LiveArgument

    Gradients = list[Tensor | None]

_SCALES: Final = (0.0625, 16.0)
"""The gradients of the step times these, and once others of their size, are what an argument was not chosen on."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One step: the optimizer, and a copy of it and the gradients as they were before."""

    optimizer: Any
    before: Any
    gradients: Gradients


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

    def of(self, known: type) -> tuple[Any, ...]:
        """The optimizers of a class, in the order of their first steps."""
        return tuple(step.optimizer for step in self._steps.values() if isinstance(step.optimizer, known))

    def failing(self, known: type) -> tuple[Any, ...]:
        """The optimizers of a class whose step gives NaN or Inf."""
        return tuple(one for one in self.of(known) if not all(np.isfinite(u).all() for u in self._updates(one)))

    def verdict(self, live: LiveArgument, kind: FixKind) -> FixVerdict:
        """The verdict on an argument of optimizers, an epsilon, by the updates that it gives."""
        del kind
        try:
            return _Comparison([self._steps[id(one)] for one in live.objects], live).verdict()
        except (RuntimeError, TypeError, ValueError, KeyError) as error:
            return _unknown(f"its step could not be made on copies ({error})")

    def _updates(self, optimizer: Any) -> list[np.ndarray]:
        step = self._steps[id(optimizer)]
        try:
            return _updates(step, step.gradients)
        except (RuntimeError, TypeError, ValueError, KeyError):
            return []

    def _keep(self, optimizer: Any) -> None:
        """Copy what an optimizer is about to step with, unless that is too much or bad already."""
        try:
            with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                parameters = list(parameters_of(optimizer))
                gradients = [p.grad for p in parameters]
                state = [v for one in optimizer.state.values() for v in one.values() if isinstance(v, torch.Tensor)]
                held = [t for t in (*gradients, *parameters, *state) if t is not None]
                if sum(t.numel() * t.element_size() for t in held) > LIMIT or not all(map(is_finite, held)):
                    return
                copies = [None if g is None else g.detach().clone() for g in gradients]
                self._steps[id(optimizer)] = _Step(optimizer, copy.deepcopy(optimizer), copies)
        except Exception:
            # the program's step comes first; without its copies nothing is proved
            self._steps.pop(id(optimizer), None)


class _Comparison:
    """The updates of some steps, as they are and with another value of an argument."""

    def __init__(self, steps: list[_Step], argument: LiveArgument) -> None:
        self._steps, self._argument = steps, argument
        self._healthy = self._moved = 0
        self._most = 0.0
        """By how much, relative, a healthy update moves at most."""

    def verdict(self) -> FixVerdict:
        """Cured, kept, not invented."""
        if any(not _step_of(s.optimizer).__module__.startswith("torch.optim") for s in self._steps):
            return _unknown("its step is the program's own")
        own = [step.gradients for step in self._steps]
        old, new = self._all(own), self._all(own, changed=True)
        bad = ~np.isfinite(old)
        failing = int(bad.sum())
        if not failing:
            return _unknown("the step that was kept does not fail by itself")
        if left := int((~np.isfinite(new)).sum()):
            why = f"still NaN or Inf in {left:,} of {failing:,} updates"
            return FixVerdict(status="rejected", forward_finite=False, why=why)
        self._healthy, (self._moved, self._most) = int((~bad).sum()), _moves(old, new)
        further = 0
        for gradients in zip(*(_fresh(step) for step in self._steps), strict=True):
            again = self._all(list(gradients), changed=True)
            if not np.isfinite(again).all():
                why = "NaN or Inf in updates of other gradients"
                return FixVerdict(status="rejected", forward_finite=True, why=why)
            further += _moves(self._all(list(gradients)), again)[0]
        if self._most >= BOUND:
            return self._told("rejected", f"changes {self._share}, by up to {self._most:.3g} relative")
        given, exact = new[bad], self._all(own, dtype=torch.float64)[bad]
        # 0 / 0 has no value there, and 0 is what an optimizer gives where there is no gradient
        wrong = np.where(np.isnan(exact), given != 0, ~(np.abs(given - exact) <= BOUND * np.abs(exact)))
        finite = f"the update is finite for all {failing:,} elements of which it was not"
        if other := int(wrong.sum()):
            at = int(np.argmax(np.where(wrong, np.abs(given), -1.0)))
            made, meant = (format_value(float(numbers[at]), digits=3) for numbers in (given, exact))
            one = f"{made} where the exact one is {meant}"
            size = max(float(np.abs(old[~bad]).max(initial=0.0)), float(np.nan_to_num(abs(exact[at]), posinf=0.0)))
            if abs(given[at]) > 2 * size:
                return self._told("rejected", f"gives an update of {one}")
            finite = f"the update is finite, but {one}, one of {other:,} such"
        if not (self._moved or further or other):
            undefined = int(np.isnan(exact).sum())
            found = self._told("verified", f"{finite}; none of {self._healthy:,} healthy updates moves")
            zero = StandIn(output=0, lack="undefined", least=0.0, greatest=0.0, count=undefined, total=old.size)
            return found.model_copy(update={"status": "guarded", "stand_ins": (zero,)}) if undefined else found
        moved = f"moves {self._share}" + (f", by up to {self._most:.3g} relative" if self._moved else "")
        moved += "; of other gradients it moves some" if further and not self._moved else ""
        return self._told("distorting", f"{moved}; {finite}")

    def _all(
        self, gradients: list[Gradients], *, changed: bool = False, dtype: torch.dtype | None = None
    ) -> np.ndarray:
        argument = self._argument if changed else None
        made = [_updates(s, g, argument, dtype) for s, g in zip(self._steps, gradients, strict=True)]
        return np.concatenate([update for one in made for update in one])

    def _told(self, status: Any, why: str) -> FixVerdict:
        counted = {"healthy_elements": self._healthy, "healthy_worse": self._moved, "max_rel": self._most}
        return FixVerdict(status=status, forward_finite=True, why=why, **(counted if self._healthy else {}))

    @property
    def _share(self) -> str:
        part = f"{100 * self._moved / self._healthy:.3g}% of {self._healthy:,}" if self._moved else "none of the"
        return f"{part} healthy updates"


def _updates(
    step: _Step, gradients: Gradients, argument: LiveArgument | None = None, dtype: torch.dtype | None = None
) -> list[np.ndarray]:
    """The updates of a step with some gradients, of parameters of 0, so that no rounding of a weight hides one."""
    made = copy.deepcopy(step.before)
    rest, moved = iter(gradients), []
    for group in made.param_groups:
        group |= {name: value for name, value in (("foreach", False), ("fused", None)) if name in group}
        group |= {} if argument is None else {argument.name: argument.value}
        decay = 0.0 if group.get("decoupled_weight_decay") else group.get("weight_decay") or 0.0
        for parameter in group["params"]:
            gradient, kind = next(rest), dtype or parameter.dtype
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
    return [p.detach().cpu().double().numpy().ravel() for p in moved]


def _step_of(optimizer: Any) -> Any:
    """What makes a step, without the hooks around it."""
    step: Any = type(optimizer).step
    return getattr(step, "__wrapped__", step)


def _fresh(step: _Step) -> Iterator[Gradients]:
    """Gradients that a value was not chosen on."""
    for scale in _SCALES:
        yield [None if g is None else g * scale for g in step.gradients]
    random = torch.Generator().manual_seed(0)
    yield [None if g is None else _likewise(g, random) for g in step.gradients]


def _likewise(gradient: Tensor, random: torch.Generator) -> Tensor:
    """Other numbers of the size of a gradient's, and 0 where it is."""
    drawn = torch.randn(gradient.shape, generator=random).to(gradient) * gradient.float().abs().mean().to(gradient)
    return torch.where(gradient == 0, gradient, drawn)


def _moves(old: np.ndarray, new: np.ndarray) -> tuple[int, float]:
    """How many healthy updates are others, and by how much of themselves at most."""
    healthy = np.isfinite(old)
    before, after = old[healthy], new[healthy]
    off = np.abs(after - before)
    return int((off > 0).sum()), float((off / np.where(off > 0, np.abs(before), 1.0)).max(initial=0.0))


def _unknown(why: str) -> FixVerdict:
    return FixVerdict(status="unverified", why=why)
