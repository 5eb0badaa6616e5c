"""The ways to look at a step: nothing, an empty mode, whynan, and its peers."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import whynan
from benchmarks import fits
from benchmarks.programs import Step
from whynan.rules.catalogue import rules

BARE = "bare"
EMPTY = "empty mode"
TRACED = "whynan.trace"
RANGED = "whynan.trace, ranges"
WATCHED = "whynan.watch"
DEFERRED = "whynan.watch, deferred"
TRACED_WITHOUT = "whynan.trace, no silent damage"
WATCHED_WITHOUT = "whynan.watch, no silent damage"
FITTED = "Lightning"
FITTED_WATCHED = "Lightning, whynan's callback"


@dataclass(frozen=True)
class Contender:
    """A way to look, as a context around all steps; `run` is the step where the peer takes it over."""

    name: str
    look: Callable[[Step], AbstractContextManager[Any]]
    run: Callable[[Step], None] = Step.__call__
    needs: str | None = None
    base: str = BARE
    """What its time is compared with."""


class Empty(TorchDispatchMode):
    """The floor of every tool that sees each operation in Python: a mode that does nothing but count."""

    def __init__(self) -> None:
        super().__init__()
        self.events = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.events += 1
        return func(*args, **(kwargs or {}))


class LeanEmpty(Empty):
    """An empty mode without the wrapper that torch puts around the dispatch of every mode (pytorch#164143)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.events += 1
        return func(*args, **kwargs) if kwargs else func(*args)


class FiniteEach(TorchDispatchMode):
    """What one writes in a minute: `isfinite(out).all()` after every operation."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                bool(torch.isfinite(tensor).all())
        return out


@contextmanager
def _without_silent(look: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    """With every rule of silent damage allowed, so that nothing is read for them: what they cost is the difference."""
    before = os.environ.get("WHYNAN_ALLOW")
    os.environ["WHYNAN_ALLOW"] = ",".join(rule.code for rule in rules() if rule.reads)
    try:
        way = look()
    finally:
        if before is None:
            del os.environ["WHYNAN_ALLOW"]
        else:
            os.environ["WHYNAN_ALLOW"] = before
    with way as looking:
        yield looking


@contextmanager
def _debug_overflow(step: Step) -> Iterator[None]:
    from transformers.debug_utils import DebugUnderflowOverflow

    DebugUnderflowOverflow(step.model)
    yield


def _torchlens(step: Step) -> None:
    import torchlens

    step.optimizer.zero_grad()
    log = torchlens.trace(step.model, step.batch)
    log.log_backward(log[-1].out)
    step.optimizer.step()


def _callback() -> Any:
    from whynan.integrations import lightning

    return lightning.callback()


CONTENDERS = (
    Contender(BARE, lambda _: nullcontext()),
    Contender("bare, once more", lambda _: nullcontext()),
    Contender(EMPTY, lambda _: Empty()),
    Contender("empty mode, lean", lambda _: LeanEmpty()),
    Contender(TRACED, lambda _: whynan.trace()),
    Contender(RANGED, lambda _: whynan.trace(ranges=True)),
    Contender(WATCHED, lambda step: whynan.watch(step.optimizer)),
    Contender(DEFERRED, lambda step: whynan.watch(step.optimizer, sync="deferred")),
    Contender(TRACED_WITHOUT, lambda _: _without_silent(whynan.trace)),
    Contender(WATCHED_WITHOUT, lambda step: _without_silent(lambda: whynan.watch(step.optimizer))),
    Contender("detect_anomaly", lambda _: torch.autograd.detect_anomaly()),
    Contender("isfinite per op", lambda _: FiniteEach()),
    Contender("HF DebugUnderflowOverflow", _debug_overflow, needs="transformers"),
    Contender(FITTED, fits.fit(), fits.run, needs="lightning"),
    Contender(FITTED_WATCHED, fits.fit(callback=_callback), fits.run, needs="lightning", base=FITTED),
    Contender("Lightning, detect_anomaly", fits.fit(detect_anomaly=True), fits.run, needs="lightning", base=FITTED),
    Contender("torchlens", lambda _: nullcontext(), _torchlens, needs="torchlens"),
)


def contender(name: str) -> Contender:
    """The contender of that name; raises ``KeyError``."""
    return {c.name: c for c in CONTENDERS}[name]


def installed() -> list[Contender]:
    """All ways to look that can run here; the bare step comes first."""
    return [c for c in CONTENDERS if c.needs is None or importlib.util.find_spec(c.needs) is not None]
