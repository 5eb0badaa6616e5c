"""The gradients and losses that a step is about to consume, and what of them is NaN or Inf."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from whynan.capture.torch.names import Identities
from whynan.capture.torch.provenance.interventions import dense, stored_values
from whynan.capture.torch.shadow_memory import is_strided, is_wrapped, local

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import FrameType

    from torch import Tensor

    from whynan.records import ScaleFall
    from whynan.source.decisions import Decision


# -- A step about to be made: losses, gradients, which of them are bad -------------------------------------------------


@dataclass(frozen=True)
class StepEvidence:
    """What a step was about to be made of: the losses that were differentiated for it, and its bad gradients.

    `losses`: their bits, a loss each. `bad`: by the parameter, where its gradient is NaN or Inf; None where that is not
    known any more. `bad_loss`: one of the losses is.
    """

    losses: tuple[bytes, ...]
    bad: tuple[tuple[Tensor, Tensor | None], ...]
    bad_loss: bool
    spoilt: tuple[Tensor, ...] = ()
    """Parameters that are NaN or Inf already."""
    numbers: tuple[float, ...] = ()
    """The losses as numbers: of one of several elements its greatest magnitude."""

    @property
    def is_good(self) -> bool:
        """Whether nothing is NaN or Inf."""
        return not self.bad and not self.bad_loss

    def same_as(self, other: StepEvidence, *, made_anew: bool = False) -> bool:
        """Whether both have the same losses, bit for bit, and the same elements of the same gradients are bad.

        Not where the elements of one are not known any more. ``made_anew``: the parameters of one are others, in the
        same order.
        """
        if self.losses != other.losses or len(self.bad) != len(other.bad):
            return False
        if made_anew:
            return all(_is_same(one, two) for (_, one), (_, two) in zip(self.bad, other.bad, strict=True))
        theirs_ = {id(p): mask for p, mask in other.bad}
        return all(id(p) in theirs_ and _is_same(mask, theirs_[id(p)]) for p, mask in self.bad)

    def is_part_of(self, other: StepEvidence) -> bool:
        """Whether the losses are the same, bit for bit, and what is bad of the gradients is bad in the other too."""
        theirs_ = {id(p): mask for p, mask in other.bad}
        return self.losses == other.losses and all(
            mask is not None and (theirs := theirs_.get(id(p))) is not None and not bool((mask & ~theirs).any())
            for p, mask in self.bad
        )


def _is_same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and torch.equal(one, other)


@dataclass(frozen=True)
class Raised:
    """An exception that has left the program while it held bad numbers, and the frames that it has left."""

    kind: type[BaseException]
    frames: tuple[FrameType, ...]
    names_it: bool = False
    """Whether it says itself that something is NaN or Inf."""


@dataclass(frozen=True)
class Fault:
    """A step that was about to spoil the weights, or that a scaler will not make any more.

    Without an optimizer it is a bad number that the program read, or held as it raised: its bits stand for the loss.
    """

    optimizer: Any
    step: int
    judged: StepEvidence
    skipped: int = 0
    scale_fall: ScaleFall | None = None
    """How a loss scaler has skipped steps in vain, where that is why it is one."""
    lag: int = 0
    """How many steps later its numbers were read; it has been made then."""
    raised: Raised | None = None
    """What the program raised, where that is how it is known."""
    ahead: bool = False
    """Whether it is looked at before another one that is made of the same backward."""
    decision: Decision | None = None
    """What the program does for the number that it has read, where that is how it is known."""
    certain: bool = False
    """Whether that number is known to be a loss, without a replay."""
    read_at: tuple[str, int] | None = None
    """The file and line at which it was read."""
    beside: bool = False
    """Whether another optimizer has stepped on the gradients of the same backward, and moved its weights."""
    made: bool = False
    """Whether it has been made since, and bore bad numbers itself."""

    @property
    def whole(self) -> bool:
        """Whether it is the whole program, which has ended: no step, and no number that was read or held."""
        return self.optimizer is None and not self.judged.losses

    @property
    def ends_itself(self) -> bool:
        """Whether the program itself ends, or leaves its loop, for what it has read or held."""
        return self.decision is not None or (self.raised is not None and not self.whole)

    def parameters(self) -> list[Tensor]:
        """What the step would have moved."""
        return [] if self.optimizer is None else parameters_of(self.optimizer)


@dataclass
class Losses:
    """The losses that were differentiated since the last step; ``before``: as they were before a scaler's scale."""

    held: list[Tensor] = field(default_factory=list)
    before: list[Tensor] = field(default_factory=list)
    _scaled: list[tuple[weakref.ref[Tensor], Tensor]] = field(default_factory=list)

    def scales(self, losses: Any, scaled: Any) -> None:
        """A loss scaler has multiplied losses by its scale."""
        if isinstance(losses, torch.Tensor):
            # the number without its graph
            if (number := _number_of(losses)) is not None:
                self._scaled.append((weakref.ref(scaled), number))
        elif isinstance(losses, (list, tuple)):
            for loss, out in zip(cast("Iterable[Any]", losses), scaled, strict=False):
                self.scales(loss, out)

    def discard(self) -> None:
        """The gradients of what was differentiated so far are not used."""
        self.held.clear()
        self.before.clear()

    def clear(self) -> None:
        """The step is over."""
        self.discard()
        self._scaled.clear()

    def record_backward(self, roots: Iterable[Any], gradients: Sequence[Any] = ()) -> None:
        """A backward begins, with a gradient given for each root."""
        for root, gradient in itertools.zip_longest(roots, gradients):
            if isinstance(root, torch.Tensor) and root.is_floating_point() and not is_wrapped(root):
                if (number := _number_of(root)) is None:
                    continue
                differentiated = differentiated_in(root, gradient)
                self.held.append(number if differentiated is None else torch.where(differentiated, number, 0))
                self.before += [loss for scaled, loss in self._scaled if scaled() is root]

    def bits(self) -> tuple[bytes, ...]:
        """Each, bit for bit."""
        return tuple(bytes(t.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()) for t in self.held)

    def numbers(self) -> tuple[float, ...]:
        """Each as a number; of one of several elements its greatest magnitude."""
        return tuple(float(t.item() if t.numel() == 1 else t.abs().max()) for t in self.held if t.numel())

    def bad(self, *, scaled: bool) -> bool:
        """Whether one is NaN or Inf; with `scaled` only a NaN, for an Inf may be the scale's."""
        return any(not _is_good(t, scaled=scaled) for t in self.held)


def gradients_given(args: Sequence[Any]) -> Sequence[Any]:
    """The gradients that the engine is called with for its roots: the first argument behind them."""
    return args[0] if args and isinstance(args[0], (list, tuple)) else ()


def differentiated_in(root: Tensor, gradient: Any) -> Tensor | None:
    """Where the gradient given for a root of a backward is not 0: the rest of it is no part of the loss; None: all is.

    So a program goes on from the gradients of a remote part, of a checkpoint, of a cache.
    """
    if not isinstance(gradient, torch.Tensor) or is_wrapped(root) or is_wrapped(gradient):
        return None
    here, given = local(root), local(gradient)
    if here is None or given is None or not (is_strided(here) and is_strided(given)):
        return None
    if here.numel() == 1 or given.shape != here.shape:
        return None
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        return given != 0


def _number_of(loss: Tensor) -> Tensor | None:
    """A loss without its graph, as far as it can be read; a copy where the program may overwrite it."""
    here = local(loss)
    return here if here is None else here.detach() if here.numel() > 1 else here.detach().clone()


def _is_good(tensor: Tensor, *, scaled: bool) -> bool:
    if tensor.numel() == 1:
        value: Any = tensor.item()
        return value == value if scaled else value - value == 0
    return not bool((torch.isnan if scaled else _not_finite)(tensor).any())


def _not_finite(tensor: Tensor) -> Tensor:
    return ~torch.isfinite(tensor)


def parameters_of(optimizer: Any) -> list[Tensor]:
    """All parameters of an optimizer, in the order of its groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def leave_out(optimizer: Any) -> None:
    """Have an optimizer's step move nothing: it passes over what has no gradient."""
    for parameter in parameters_of(optimizer):
        parameter.grad = None


def gradients_of(optimizer: Any) -> list[tuple[Tensor, Tensor]]:
    """The parameters of an optimizer that have a gradient, with what this process can read of it."""
    return [(p, here) for p in parameters_of(optimizer) if p.grad is not None and (here := local(p.grad)) is not None]


def norm_of(gradients: list[Tensor]) -> float:
    """The norm of all gradients, which is finite only if each of them is; it may overflow where they are."""
    if not gradients:
        return 0.0
    try:
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))).item()
    except (RuntimeError, NotImplementedError, TypeError):
        # of several dtypes or devices, or sparse
        return sum(_norm(each) ** 2 for each in gradients) ** 0.5


def _norm(gradient: Tensor) -> float:
    return torch.linalg.vector_norm(stored_values(gradient)).item()


@torch.no_grad()
def gather_evidence(optimizer: Any, losses: Losses) -> StepEvidence:
    """All that is known of a step about to be made."""
    bad = []
    for parameter, gradient in gradients_of(optimizer):
        mask = _not_finite(dense(gradient))
        if bool(mask.any()):
            bad.append((parameter, mask))
    bad_loss = losses.bad(scaled=False)
    return StepEvidence(losses.bits(), tuple(bad), bad_loss, bad_parameters(optimizer), losses.numbers())


def bad_parameters(optimizer: Any) -> tuple[Tensor, ...]:
    """The parameters of an optimizer that are NaN or Inf."""
    return tuple(p for p in parameters_of(optimizer) if not is_finite(p))


def is_finite(tensor: Tensor) -> bool:
    """Whether what this process can read of a tensor holds no NaN or Inf."""
    here = local(tensor)
    return here is None or bool(torch.isfinite(stored_values(here)).all())


def is_zero(tensor: Tensor) -> bool:
    """Whether all that this process can read of a tensor is 0; not where it can read nothing."""
    here = local(tensor)
    return here is not None and not bool(stored_values(here).any())


def count_infinities(tensor: Tensor) -> Tensor | None:
    """How many infinities what this process can read of a tensor holds, none where it holds NaN; not waited for."""
    here = local(tensor)
    if here is None:
        return None
    values = stored_values(here)
    return torch.where(torch.isnan(values).any(), 0, torch.isinf(values).sum())


def device_of(optimizers: Iterable[Any]) -> str:
    """What optimizers compute on."""
    kinds = {p.device.type for optimizer in optimizers for p in parameters_of(optimizer)}
    return next(iter(sorted(kinds - {"cpu"})), "cpu")


class Probes:
    """A step of an optimizer that tries points which it does not keep, and the weights before it.

    The one step for which weights are copied: such an optimizer keeps a hundred copies itself.
    """

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.fault: Fault | None = None
        self.explained: Any = None
        self.is_told = False
        """Whether the step's first point was bad, which has been told of."""
        here = [local(p) for p in parameters_of(optimizer)]
        self._before = [(p, p.detach().clone()) for p in here if p is not None]
        self._begun = False

    def begin(self) -> bool:
        """Whether a first point has been looked at, which is no trial: the weights as the last step has left them."""
        first, self._begun = not self._begun, True
        return first

    def first_fault(self, losses: Losses, step: int) -> Fault | None:
        """The fault of the first point that is bad, when it has been tried."""
        if self.fault is None and not (judged := gather_evidence(self.optimizer, losses)).is_good:
            self.fault = Fault(self.optimizer, step, judged)
            return self.fault
        return None

    @torch.no_grad()
    def spoilt_weights(self) -> bool:
        """Whether the step has left a weight NaN or Inf that was none."""
        return any(bool((_not_finite(p) & torch.isfinite(before)).any()) for p, before in self._before)

    @torch.no_grad()
    def restore_weights(self) -> None:
        """Have the weights be as before the step."""
        for parameter, before in self._before:
            parameter.copy_(before)


# -- Several optimizers on the gradients of one backward ---------------------------------------------------------------
#
# Which come together is learnt as they do. What is bad for a later one is then explained before the first has
# stepped, and told of only if the later one does step on it.


MOST_UNCLAIMED: Final = 3
"""So many explanations of what no step came to use, and nothing is explained beforehand any more."""


class OptimizerGroup:
    """The optimizers of one thread that have stepped since its last backward, and those that come after them."""

    def __init__(self) -> None:
        self._since: list[weakref.ref[Any]] = []
        self._later: Identities[list[weakref.ref[Any]]] = Identities()
        self._early: tuple[Fault, Any] | None = None
        self._unclaimed = 0

    def backward(self) -> None:
        """Gradients are about to be computed."""
        self._since.clear()
        self._early = None

    def step(self, optimizer: Any) -> bool:
        """An optimizer is about to step; whether another has stepped on these gradients."""
        first = self._since[0]() if self._since else None
        self._since.append(weakref.ref(optimizer))
        if first is None or first is optimizer:
            return False
        later = self._later.get(first) or []
        if not any(known() is optimizer for known in later):
            self._later.set(first, [*later, weakref.ref(optimizer)])
        return True

    def later_optimizers(self, optimizer: Any) -> list[Any]:
        """The optimizers that will step after this one on the same gradients."""
        if len(self._since) != 1 or self._unclaimed >= MOST_UNCLAIMED:
            return []
        return [o for known in self._later.get(optimizer) or [] if (o := known()) is not None]

    def bad_later_step(self, optimizer: Any, losses: Losses, only: Sequence[int]) -> tuple[Any, StepEvidence] | None:
        """What is bad for one that will step after this one: it, and what its step would be made of.

        `only`: the numbers of those that are looked at; all where there are none.
        """
        for other in self.later_optimizers(optimizer):
            if not only or id(other) in only:
                norm = norm_of([g for _, g in gradients_of(other)])
                judged = None if norm - norm == 0 else gather_evidence(other, losses)
                if judged is not None and not judged.is_good:
                    return other, judged
        return None

    def keep(self, fault: Fault, explained: Any) -> None:
        """What is known of a step that may come."""
        self._early = fault, explained
        self._unclaimed += 1

    def explained(self, fault: Fault) -> tuple[Fault, Any] | None:
        """What is known of a step that has come, if it is made of the same."""
        early = self._early
        if early is None or early[0].optimizer is not fault.optimizer:
            return None
        # the losses are those of the first step
        if not replace(early[0].judged, losses=fault.judged.losses).same_as(fault.judged):
            return None
        self._unclaimed = 0
        return early
