"""A bad number planted into one element of the output of one event, and what a bare run says that it did."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.quality.models import Step

ACCUMULATE_GRAD = 2**64 - 1
VALUES = (float("nan"), float("inf"), float("-inf"))
STRATA = ("forward", "backward", "accumulation", "optimizer", "buffer")
PHASES = {
    "forward": ("forward",),
    "backward": ("backward", "accumulation"),
    "accumulation": ("accumulation",),
    "optimizer": ("optimizer",),
    "buffer": ("buffer", "forward"),
}
NORMS = ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm")
# running mean and variance, which their schema does not show as written
RUNNING = slice(3, 5)
# the fused optimizers declare `grads` as written, and write them only to unscale
FUSED_GRADIENTS = "grads"


@dataclass(frozen=True)
class Candidate:
    """An output of an event that may be overwritten."""

    event: int
    op: str
    stratum: str
    output: int


@dataclass(frozen=True)
class Plant:
    """One overwrite: where, which element among the finite ones (as a share), and the value."""

    candidate: Candidate
    share: float
    value: float


@dataclass(frozen=True)
class Planted:
    """What an overwrite did: the element's place, and the value that it replaced."""

    index: tuple[int, ...]
    replaced: float


class Planter(TorchDispatchMode):
    """Counts events and overwrites one element; entered before a trace, so that the trace sees the result.

    Args:
        step: the training step that runs, for its section.
        plant: what to overwrite; None only records which outputs could be.
    """

    def __init__(self, step: Step, plant: Plant | None = None) -> None:
        super().__init__()
        self.step = step
        self.plant = plant
        self.events = 0
        self.candidates: list[Candidate] = []
        self.planted: Planted | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        event = self.events
        self.events += 1
        if self.plant is None:
            for number, tensor in enumerate(fresh_outputs(func, args, kwargs, out)):
                if _plantable(tensor):
                    self.candidates.append(Candidate(event, str(func), self._stratum(func, number), number))
        elif event == self.plant.candidate.event:
            tensor = fresh_outputs(func, args, kwargs, out)[self.plant.candidate.output]
            self.planted = overwrite(tensor, self.plant)
        return out

    def _stratum(self, func: Any, output: int) -> str:
        node = torch._C._current_autograd_node()
        if node is not None and node._sequence_nr() == ACCUMULATE_GRAD:
            return "accumulation"
        if _base(func) in NORMS and output >= len(func._schema.returns):
            return "buffer"
        if self.step.section == "backward" and node is not None and torch.is_grad_enabled():
            # a checkpoint's forward, run again
            return "forward"
        return self.step.section


class Nothing(TorchDispatchMode):
    """A mode that does nothing: in its presence PyTorch uses the formulas that it uses under a trace."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _base(func: Any) -> str:
    return str(func).split(".")[1]


def _tensors(value: Any) -> list[torch.Tensor | None]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return [None]


def fresh_outputs(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> list[torch.Tensor | None]:
    """What an event wrote, by output; None in place of views, uninitialised memory and what is no tensor."""
    schema = func._schema
    if _base(func).startswith(("empty", "new_empty")):
        return []
    written: list[torch.Tensor | None] = []
    returned = _tensors(out)
    if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
        returned = [None for _ in returned]
    inputs = {_storage(t) for v in (*args, *kwargs.values()) for t in _tensors(v) if t is not None}
    mutable = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if mutable and not any(r.alias_info is not None for r in schema.returns):
        for position, argument in enumerate(schema.arguments):
            if argument in mutable and argument.name != FUSED_GRADIENTS:
                value = args[position] if position < len(args) else kwargs.get(argument.name)
                written += _tensors(value)
    for tensor in returned:
        view = tensor is not None and not mutable and _storage(tensor) in inputs
        written.append(None if view else tensor)
    if _base(func) in NORMS:
        written += [t for v in args[RUNNING] for t in _tensors(v)]
    return written


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _plantable(tensor: torch.Tensor | None) -> bool:
    return (
        tensor is not None and tensor.is_floating_point() and tensor.numel() > 0 and bool(torch.isfinite(tensor).any())
    )


def overwrite(tensor: torch.Tensor | None, plant: Plant) -> Planted | None:
    """Put a plant's value into one of a tensor's finite elements."""
    if tensor is None or not _plantable(tensor):
        return None
    finite = torch.isfinite(tensor).nonzero()
    index = tuple(int(i) for i in finite[int(plant.share * len(finite))])
    replaced = float(tensor[index])
    tensor[index] = plant.value
    return Planted(index, replaced)


def draw(candidates: list[Candidate], seed: int, shares: dict[str, int]) -> list[Plant]:
    """Plants drawn by seed, so many from each stratum; a stratum with too few gives the rest to the forward."""
    generator = random.Random(seed)
    by_stratum: dict[str, list[Candidate]] = {s: [c for c in candidates if c.stratum == s] for s in STRATA}
    chosen: list[Candidate] = []
    for stratum in STRATA:
        chosen += generator.choices(by_stratum[stratum], k=shares[stratum]) if by_stratum[stratum] else []
    missing = sum(shares.values()) - len(chosen)
    chosen += generator.choices(by_stratum["forward"], k=missing)
    return [Plant(c, generator.random(), generator.choice(VALUES)) for c in chosen]
