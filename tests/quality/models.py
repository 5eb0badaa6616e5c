"""One training step of a model of the zoo, in all its variants."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.quality.zoo import BY_NAME as BY_NAME
from tests.quality.zoo import NAMES as NAMES
from tests.quality.zoo import SPECS as SPECS
from tests.quality.zoo import Spec as Spec


def seed_everything(seed: int) -> None:
    """Seed the generators that the models draw from."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@dataclass(frozen=True)
class Variant:
    """How a model is run: attention, dropout, autocast, checkpointing."""

    attention: str | None = None
    dropout: bool = False
    autocast: bool = False
    checkpoint: str | None = None

    def __str__(self) -> str:
        parts = [
            self.attention,
            "dropout" if self.dropout else None,
            "bf16" if self.autocast else None,
            self.checkpoint,
        ]
        return "-".join(p for p in parts if p) or "plain"


MODES: tuple[dict[str, Any], ...] = (
    {},
    {"dropout": True},
    {"autocast": True},
    {"checkpoint": "reentrant"},
    {"checkpoint": "nonreentrant"},
)


def _supports(spec: Spec) -> tuple[tuple[str | None, ...], bool]:
    """The attention implementations that an architecture has, and whether it has checkpointing."""
    seed_everything(0)
    model: Any = spec.build(None, 0.0)
    attentions: tuple[str | None, ...] = ("sdpa", "eager") if model._supports_sdpa else (None,)
    return attentions, bool(model.supports_gradient_checkpointing)


def variants(spec: Spec) -> list[Variant]:
    """Every way in which an architecture can be run."""
    attentions, checkpointing = _supports(spec)
    found = [
        Variant(attention=a, **mode) for a in attentions for mode in MODES if checkpointing or "checkpoint" not in mode
    ]
    return [v for v in found if not any(part in str(v) for part in spec.without)]


class Step:
    """One training step of one model: forward, loss, backward, a buffer, AdamW, `zero_grad`.

    Args:
        micro: how many backward calls feed the optimizer step.
        optimizer: `default`, `foreach` or `fused`.
    """

    def __init__(
        self, spec: Spec, variant: Variant, *, seed: int = 0, micro: int = 1, optimizer: str = "default"
    ) -> None:
        seed_everything(seed)
        self.model: Any = spec.build(variant.attention, 0.1 if variant.dropout else 0.0)
        self.model.train()
        self.model.register_buffer("loss_average", torch.zeros(()))
        if variant.checkpoint is not None:
            self.model.gradient_checkpointing_enable({"use_reentrant": variant.checkpoint == "reentrant"})
        flags = {} if optimizer == "default" else {optimizer: True}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, **flags)
        self.batch = spec.batch()
        self.variant = variant
        self.micro = micro
        self.seed = seed
        self.section = "none"
        self.bad: dict[str, list[str]] = {}
        self.optimizer.register_step_pre_hook(lambda *_: self._gradients())

    def run(self) -> None:
        """Take the step; `section` says which part is running, `bad` afterwards which fatal sinks are not finite."""
        seed_everything(self.seed + 1)
        for _ in range(self.micro):
            self.section = "forward"
            with torch.autocast("cpu", torch.bfloat16) if self.variant.autocast else contextlib.nullcontext():
                loss = self.model(**self.batch).loss
            self._note("loss", [("loss", loss)])
            self.section = "backward"
            loss.backward()
        self.section = "buffer"
        with torch.no_grad():
            self.model.loss_average.mul_(0.9).add_(loss.detach(), alpha=0.1)
        del loss
        self.section = "optimizer"
        self.optimizer.step()
        self.section = "none"
        self._note("parameter", self.model.named_parameters())
        self._note("buffer", self.model.named_buffers())
        self.optimizer.zero_grad()

    def _gradients(self) -> None:
        self._note("gradient", ((n, p.grad) for n, p in self.model.named_parameters()))

    def _note(self, kind: str, tensors: Iterable[tuple[str, torch.Tensor | None]]) -> None:
        """Look at tensors below every dispatch mode, so that looking is no event."""
        with torch._C._DisableTorchDispatch():
            found = bad_names(tensors)
        if found:
            self.bad[kind] = self.bad.get(kind, []) + found


def bad_names(tensors: Iterable[tuple[str, torch.Tensor | None]]) -> list[str]:
    """Names of the tensors that hold a NaN or an Inf."""
    return [n for n, t in tensors if t is not None and t.is_floating_point() and not bool(torch.isfinite(t).all())]
