"""What a loss scaler has tried, in words."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.floats import format_value

if TYPE_CHECKING:
    from whynan.records import Finding, ScaleFall


def described(fall: ScaleFall) -> str:
    """``the loss scaler has skipped 17 steps on end, its scale falling from 65536 to 1``."""
    if fall.last is None:
        return f"the program has discarded bad gradients {fall.skipped:,} times on end"
    scale = f"at a scale of {format_value(fall.last)}"
    if fall.first is not None and fall.first > fall.last:
        scale = f"its scale falling from {format_value(fall.first)} to {format_value(fall.last)}"
    when = "on end" if fall.on_end else "since its scale last rose"
    return f"the loss scaler has skipped {fall.skipped:,} steps {when}, {scale}"


def in_vain(finding: Finding) -> str:
    """What is said of a birth that another rule explains, where a scaler has skipped its gradients; else nothing."""
    fall = finding.scale_fall
    if fall is None:
        return ""
    told = described(fall)
    return f" {told[0].upper()}{told[1:]}: no scale makes these gradients finite."
