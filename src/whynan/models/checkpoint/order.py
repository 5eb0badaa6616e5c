"""The order of several checkpoints: by the step that each stores, else by their names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final, cast

import torch

from whynan.models.checkpoint.pickles import Wrapper, plain
from whynan.records.base import Number
from whynan.records.checkpoint import Checkpoint, Order, Unordered

STEPS: Final = ("global_step", "step", "steps", "iteration", "iter", "num_updates", "epoch")
"""Under these names a checkpoint says how far the training had come; the finer ones first."""


def steps_of(document: Any) -> dict[str, Number]:
    """What the root of a document says of how far the training had come."""
    if not isinstance(document, dict):
        return {}
    held = cast("dict[Any, Any]", document)
    found = {key: _step(held[key]) for key in STEPS if key in held}
    return {key: step for key, step in found.items() if step is not None}


def order_checkpoints(checkpoints: Sequence[Checkpoint]) -> tuple[list[Checkpoint], Order]:
    """Checkpoints in order, those that cannot be read last, and how the order was had."""
    readable = [checkpoint for checkpoint in checkpoints if checkpoint.verdict != "unreadable"]
    by_name = sorted(checkpoints, key=lambda checkpoint: natural(checkpoint.name))
    for key in STEPS:
        held = [checkpoint.steps[key] for checkpoint in readable if key in checkpoint.steps]
        if len(held) == len(readable) and len(set(held)) > 1:
            return sorted(by_name, key=lambda c: c.steps.get(key, math.inf)), Order(by="step", key=key)
    return by_name, Order(by="name", why=_why_not(readable))


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts names as people count: ``ckpt-9`` before ``ckpt-10``."""
    parts = re.split(r"([0-9]+)", name)
    return [(1, int(part), "") if part.isdigit() and part.isascii() else (0, 0, part) for part in parts]


def _why_not(readable: Sequence[Checkpoint]) -> str:
    lacking = next((checkpoint.name for checkpoint in readable if not checkpoint.steps), None)
    if lacking is not None:
        return f"{lacking} stores no step"
    shared = set(STEPS).intersection(*(checkpoint.steps for checkpoint in readable))
    why: Unordered = "all store the same step" if shared else "they store their steps under different names"
    return why


def _step(value: Any) -> Number | None:
    if isinstance(value, torch.Tensor) and not isinstance(value, Wrapper):
        number = plain(value)
        value = number.item() if number.numel() == 1 and not number.is_meta and not number.is_complex() else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**63:
        return None
    return value
