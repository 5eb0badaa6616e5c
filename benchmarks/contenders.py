"""The ways to look at a step: nothing, an empty mode, whynan, and its peers."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import whynan
from benchmarks.programs import Step

Look = Callable[[Step], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Contender:
    """A way to look, as a context around steps; `run` replaces the step where the peer takes it over."""

    name: str
    look: Look
    run: Callable[[Step], None] | None = None


class Empty(TorchDispatchMode):
    """The floor of every tool that sees each operation in Python: a mode that does nothing but count."""

    def __init__(self) -> None:
        super().__init__()
        self.events = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.events += 1
        return func(*args, **(kwargs or {}))


class FiniteEach(TorchDispatchMode):
    """What one writes in a minute: `isfinite(out).all()` after every operation."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                bool(torch.isfinite(tensor).all())
        return out


@contextmanager
def _anomaly(_: Step) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            yield


@contextmanager
def _debug_overflow(step: Step) -> Iterator[None]:
    from transformers.debug_utils import DebugUnderflowOverflow

    hooks = [len(m._forward_hooks) for m in step.model.modules()]
    DebugUnderflowOverflow(step.model)
    try:
        yield
    finally:
        for module, before in zip(step.model.modules(), hooks, strict=True):
            for key in list(module._forward_hooks)[before:]:
                del module._forward_hooks[key]


def _torchlens(step: Step) -> None:
    import torchlens

    step.optimizer.zero_grad()
    torchlens.trace(step.model, step.batch)


def contenders() -> list[Contender]:
    """All ways to look that are installed; the bare step comes first."""
    found = [
        Contender("bare", lambda _: nullcontext()),
        Contender("empty mode", lambda _: Empty()),
        Contender("whynan.trace", lambda _: whynan.trace()),
        Contender("whynan.trace, ranges", lambda _: whynan.trace(ranges=True)),
        Contender("detect_anomaly", _anomaly),
        Contender("isfinite per op", lambda _: FiniteEach()),
    ]
    if importlib.util.find_spec("transformers") is not None:
        found.append(Contender("HF DebugUnderflowOverflow", _debug_overflow))
    if importlib.util.find_spec("torchlens") is not None:
        found.append(Contender("torchlens (forward only)", lambda _: nullcontext(), _torchlens))
    return found
