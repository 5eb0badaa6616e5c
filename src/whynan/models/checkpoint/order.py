"""The order of several checkpoints, and short names for them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any, Final, cast

import torch

from whynan.models.checkpoint.pickles import Wrapper, plain
from whynan.records.base import Number
from whynan.records.checkpoint import Checkpoint, Order, Unordered
from whynan.traces.json import escape_surrogates

# -- The order of several checkpoints: by the step that each stores, else by their names as people count ---------------


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


# -- Names on one line: short ones for paths, by which they can be told apart, and lists of names ----------------------


def distinct(paths: Sequence[str]) -> list[str]:
    """The paths without those that lead to the same place as one before them."""
    places: dict[str, str] = {}
    for path in paths:
        places.setdefault(_place(path), path)
    return list(places.values())


def _place(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:
        # no path at all: who opens it will say so
        return path


def short_names(paths: Sequence[str]) -> list[str]:
    """The ends of paths, as long as it takes for no two to be equal; a folder's with a slash."""
    parts = [os.path.abspath(path).split(os.sep) for path in paths]
    longest = max(map(len, parts), default=1)
    for length in range(1, longest + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            break
    else:
        names = list(paths)
    return [
        escape_surrogates(f"{name}/" if os.path.isdir(path) else name) for name, path in zip(names, paths, strict=True)
    ]


def excerpt(texts: Sequence[str], most: int) -> str:
    """The first of some texts on one line, and how many more there are."""
    shown = ", ".join(texts[:most])
    return f"{shown} and {len(texts) - most} more" if len(texts) > most else shown
