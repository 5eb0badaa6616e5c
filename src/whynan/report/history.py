"""How a training came to its bad step, from the few numbers that are kept of each step before it."""

# pyright: strict

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

from whynan.floats import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.records import Step

_SHOWN: Final = 5
_LOOKED_AT: Final = 16
_MUCH: Final = 10.0
"""A number that is so many times what it was has grown, or jumped."""


def history_lines(steps: Sequence[Step]) -> list[str]:
    """The last steps up to the bad one, and what they tell; nothing where there are fewer than three."""
    if len(steps) < 3:
        return []
    shown = steps[-_SHOWN:]
    parts: list[str] = []
    if any(step.loss is not None for step in shown):
        parts.append(f"loss {', '.join(format_value(s.loss) for s in shown)}")
    if any(step.norm is not None for step in shown):
        parts.append(f"gradient norm {', '.join(format_value(s.norm) for s in shown)}")
    if not parts:
        return []
    first, last = shown[0].step, shown[-1].step
    led = _skipped(steps) or _told(steps[:-1])
    return [f"steps {first} to {last}: {'; '.join(parts)}", *led]


def _skipped(steps: Sequence[Step]) -> list[str]:
    """That the last steps were skipped on end, and how the scale fell; nothing where fewer were than are shown."""
    made = max((number for number, step in enumerate(steps, 1) if not step.skipped), default=0)
    skipped = steps[made:]
    if len(skipped) < _SHOWN:
        return []
    scales = [step.scale for step in skipped if step.scale is not None]
    fall = f": its scale was {format_value(scales[0])}, and is {format_value(scales[-1])}" if scales else ""
    return [f"steps {skipped[0].step} to {skipped[-1].step} were skipped by the loss scaler{fall}"]


def _told(before: Sequence[Step]) -> list[str]:
    """Whether the steps before the bad one led to it."""
    for name, of in (("gradient norm", [s.norm for s in before]), ("loss", [s.loss for s in before])):
        growth = _growth(of)
        if growth is not None:
            times, rising = growth
            led, what = ("grew", "it diverges") if rising else ("jumped", "the bad number has begun before")
            return [f"the {name} {led} {format_value(times)}-fold in the steps before: {what}"]
    return ["the steps before were like the others: it came at once, with this batch or these weights"]


def _growth(of: Sequence[float | None]) -> tuple[float, bool] | None:
    """How many times what it was a number is at last, and whether it rose step by step; None where not much."""
    values = [abs(v) for v in of[-_LOOKED_AT:] if v is not None and math.isfinite(v) and v != 0]
    if len(values) < 4:
        growth = values[-1] / values[0] if len(values) > 1 else 0.0
        return (growth, values == sorted(values)) if growth >= _MUCH else None
    growth = values[-1] / median(values[: len(values) // 2])
    rising = sum(a < b for a, b in pairwise(values)) * 4 >= (len(values) - 1) * 3
    return (growth, rising) if growth >= _MUCH else None
