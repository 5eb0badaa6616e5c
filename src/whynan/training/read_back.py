"""Read-back with one step of lag: the numbers of a step are copied from the device meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from whynan.capture.torch.provenance.interventions import stored_values
from whynan.capture.torch.sinks.gradients import StepEvidence, norm_of

# -- Numbers on their way from a device to the host: all of a step together, waited for now or when they are read ------
#
# Only what is here knows of streams, events and pinned memory. On the host nothing is under way.


class Transfer:
    """Vectors, gathered into one on each device that they are on and sent to the host.

    `waits`: here and now, with one synchronisation for each device; else where `numbers` is called, by which time they
    have arrived as a rule.
    """

    def __init__(self, vectors: Sequence[Tensor], *, waits: bool) -> None:
        self._places = [(str(v.device), v.numel()) for v in vectors]
        apart: dict[str, list[Tensor]] = {}
        for (device, _), vector in zip(self._places, vectors, strict=True):
            apart.setdefault(device, []).append(wide(vector))
        send = fetch_now if waits else send_to_host
        self._arrivals = {device: send(torch.cat(each)) for device, each in apart.items()}

    def numbers(self) -> list[list[float]]:
        """The vectors, in the order in which they were given."""
        arrived = {device: iter(arrival()) for device, arrival in self._arrivals.items()}
        return [[next(arrived[device]) for _ in range(count)] for device, count in self._places]


def wide(vector: Tensor) -> Tensor:
    """The same numbers in a type that holds those of every narrower one."""
    return vector.to(torch.float32 if vector.device.type == "mps" else torch.float64)


def fetch_now(vector: Tensor) -> Callable[[], list[float]]:
    """The numbers of a vector, which its device is waited for."""
    numbers: list[float] = vector.tolist()
    return lambda: numbers


def send_to_host(vector: Tensor) -> Callable[[], list[float]]:
    """What waits for the numbers of a vector; without waiting for its device now, where it can be sent meanwhile."""
    if vector.device.type != "cuda":
        return vector.tolist
    host = torch.empty(vector.shape, dtype=vector.dtype, device="cpu", pin_memory=True)
    host.copy_(vector, non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(vector.device))

    def arrived() -> list[float]:
        event.synchronize()
        return host.tolist()

    return arrived


# -- What is read of one step: the norm of its gradients, its losses and its scale, from a device in one transfer ------


INF: Final = float("inf")


@dataclass(frozen=True)
class Parts:
    """What a step is made of: gradients, the losses differentiated for them, and what a loss scaler says of them."""

    gradients: Sequence[Tensor]
    losses: Sequence[Tensor]
    scaler: Any = None
    found_inf: Tensor | None = None
    """What has a fused optimizer pass over the step, if it is not 0."""
    before: Sequence[Tensor] = ()
    """The losses that are known as they were before the scale."""

    @property
    def on_host(self) -> bool:
        """Whether reading a number of theirs waits for no device."""
        ends = (*self.gradients[:1], *self.gradients[-1:], *self.losses, *_tensors(self.found_inf, self.scaler))
        return all(is_on_host(t) for t in ends)


@dataclass(frozen=True)
class StepStatistics:
    """The numbers of one step: a loss of several elements is its greatest magnitude; `loss`: the last, if it is one."""

    norm: float | None
    losses: tuple[float, ...]
    loss: float | None = None
    scale: float | None = None
    passed: bool = False
    """A fused optimizer passes over the step."""
    incurable: bool = False
    """A loss was NaN or Inf before it was scaled."""
    bad: tuple[bool, ...] = ()
    """Which gradients are not finite, where that was asked for."""

    @property
    def is_finite(self) -> bool:
        """Whether the norm is; then each gradient is, but it may overflow where they are."""
        return self.norm is None or self.norm - self.norm == 0

    def bad_loss(self, *, scaled: bool) -> bool:
        """Whether a loss is NaN or Inf; with `scaled` only what is no scale's doing, as an Inf may be."""
        return self.incurable or any(v != v if scaled else v - v != 0 for v in self.losses)


def is_on_host(tensor: Tensor) -> bool:
    """Whether to read a tensor waits for no device."""
    return tensor.is_cpu


def read_statistics(parts: Parts) -> StepStatistics:
    """The numbers of a step, now."""
    if parts.on_host:
        return _read_here(parts)
    numbers = PendingStatistics(parts)
    return numbers.reading(Transfer(numbers.vectors(), waits=True).numbers())


def _read_here(parts: Parts) -> StepStatistics:
    losses = tuple(_greatest(t).item() for t in parts.losses)
    scale = None if parts.scaler is None else float(parts.scaler.get_scale())
    passed = parts.found_inf is not None and bool(parts.found_inf)
    norm = None if passed else norm_of(list(parts.gradients))
    suspect = parts.before and any(v - v != 0 for v in losses)
    incurable = suspect and not all(math.isfinite(_greatest(t).item()) for t in parts.before)
    return StepStatistics(norm, losses, losses[-1] if _is_plain(parts) else None, scale, passed, bool(incurable))


class PendingStatistics:
    """The numbers of one step, still on their devices.

    `exact`: with whether each gradient is finite, which the norm does not tell where it overflows.
    """

    def __init__(self, parts: Parts, *, exact: bool = False) -> None:
        # no gradient is kept: the next step's would stand beside it
        self._count = len(parts.gradients)
        self._gated, self._plain = parts.found_inf is not None, _is_plain(parts)
        self._norms = _norms(parts.gradients)
        self._losses = [_greatest(t).detach().reshape(1) for t in parts.losses]
        self._before = [_greatest(t).detach().reshape(1) for t in parts.before]
        self._more = [t.detach().reshape(-1)[:1] for t in _tensors(parts.found_inf, parts.scaler)]
        self._bad = _not_finite(parts.gradients) if exact else []

    def vectors(self) -> list[Tensor]:
        """What is to be transferred."""
        return [*self._norms, *self._losses, *self._before, *self._more, *(vector for _, vector in self._bad)]

    def reading(self, numbers: list[list[float]]) -> StepStatistics:
        """The same, of what has arrived."""
        left = iter(numbers)
        norms = [next(left)[0] for _ in self._norms]
        losses = tuple(next(left)[0] for _ in self._losses)
        incurable = not all(math.isfinite(number) for number in [next(left)[0] for _ in self._before])
        passed = self._gated and next(left)[0] != 0
        scale = next(left)[0] if len(self._more) > self._gated else None
        bad = [False] * self._count
        for places, _ in self._bad:
            for place, flag in zip(places, next(left), strict=True):
                bad[place] = flag != 0
        norm = norms[0] if len(norms) == 1 else math.hypot(*norms)
        return StepStatistics(
            norm,
            losses,
            losses[-1] if self._plain else None,
            scale,
            passed,
            incurable,
            tuple(bad),
        )


def _tensors(found_inf: Tensor | None, scaler: Any) -> list[Tensor]:
    """What a loss scaler has on a device; its scale last."""
    scale = getattr(scaler, "_scale", None)
    return [t for t in (found_inf, scale) if t is not None]


def _is_plain(parts: Parts) -> bool:
    """Whether the last loss is one number."""
    return len(parts.losses) > 0 and parts.losses[-1].numel() == 1


def _greatest(loss: Tensor) -> Tensor:
    """One number that is NaN or Inf where the loss has one."""
    if loss.numel() == 1:
        return loss
    return loss.abs().amax() if loss.numel() else loss.new_zeros(())


def _is_wrong(tensor: Tensor) -> Tensor:
    return ~torch.isfinite(tensor)


def _values(gradient: Tensor) -> Tensor:
    """The numbers that a gradient holds, as real ones."""
    plain = stored_values(gradient)
    return torch.view_as_real(plain) if plain.is_complex() else plain


def _by_kernel(gradients: Sequence[Tensor]) -> tuple[list[tuple[list[int], list[Tensor]]], list[int]]:
    """The gradients of each device and dtype that many kernels take at once, and the places of all others."""
    groups: dict[Any, tuple[list[int], list[Tensor]]] = {}
    others: list[int] = []
    for place, gradient in enumerate(gradients):
        if type(gradient) in _PLAIN and gradient.layout == torch.strided and gradient.is_floating_point():
            if gradient.numel():
                places, tensors = groups.setdefault((gradient.device, gradient.dtype), ([], []))
                places.append(place)
                tensors.append(gradient)
        else:
            others.append(place)
    return list(groups.values()), others


_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)


def _norms(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Norms of which the norm of all gradients is made."""
    groups, others = _by_kernel(gradients)
    norms = [torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors))) for _, tensors in groups]
    norms += [torch.linalg.vector_norm(_values(gradients[place])) for place in others]
    return [norm.reshape(1) for norm in norms]


def _not_finite(gradients: Sequence[Tensor]) -> list[tuple[list[int], Tensor]]:
    """Which gradients are not finite, as vectors of flags, with the places of those gradients.

    The greatest magnitude is finite only if all are, and a sum is not always where they are.
    """
    groups, others = _by_kernel(gradients)
    found = [(places, _is_wrong(torch.stack(torch._foreach_norm(tensors, INF)))) for places, tensors in groups]
    found += [([place], _is_wrong(_values(gradients[place])).any().reshape(1)) for place in others]
    return found


# -- Read-back with one step of lag: the numbers of a step are copied to the host meanwhile, and read at the next
# step
#
# The copy has arrived by then as a rule; where it has not, the next step waits for it. So a program is never more
# than one step ahead of what is known of it.


MOST: Final = 16
"""So many optimizers may have a step that has not been read."""


class ReadBack:
    """One step of an optimizer, whose numbers are on their way to the host.

    `gradients`: by the parameter; no gradient is kept.
    """

    def __init__(self, optimizer: Any, step: int, parts: Parts, gradients: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.optimizer = optimizer
        self.step = step
        self.scaled = parts.scaler is not None
        self._parameters = [parameter for parameter, _ in gradients]
        self._numbers = PendingStatistics(parts, exact=True)
        self._transfer = Transfer(self._numbers.vectors(), waits=False)

    def reading(self) -> StepStatistics:
        """Its numbers; waits for them."""
        return self._numbers.reading(self._transfer.numbers())

    def judge_gradients(self, reading: StepStatistics) -> StepEvidence:
        """Which gradients were bad, and whether a loss was; the elements and the bits are gone."""
        bad = tuple((p, None) for p, flag in zip(self._parameters, reading.bad, strict=True) if flag)
        return StepEvidence((), bad, reading.bad_loss(scaled=False))


class PendingReads:
    """The last step of each optimizer, until its numbers are read; `read` gives what a bad one is to end with."""

    def __init__(self, read: Callable[[ReadBack], BaseException | None]) -> None:
        self._read = read
        self._steps: dict[int, ReadBack] = {}

    def add(self, step: ReadBack) -> None:
        """A step is about to be made."""
        self._steps[id(step.optimizer)] = step

    def read(self, optimizer: Any) -> BaseException | None:
        """Read the last step of an optimizer, or of another one where there are many."""
        step = self._steps.pop(id(optimizer), None)
        if step is None and len(self._steps) >= MOST:
            step = self._steps.pop(next(iter(self._steps)))
        return None if step is None else self._read(step)

    def read_all(self) -> BaseException | None:
        """Read the last step of each."""
        endings: list[BaseException | None] = []
        while self._steps:
            endings.append(self._read(self._steps.pop(next(iter(self._steps)))))
        return next((e for e in endings if e is not None), None)
