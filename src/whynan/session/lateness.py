"""What is said of a bad step that was found only after it: where it was made, what it moved, what can still be done."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.report.values import count_text

if TYPE_CHECKING:
    from whynan.capture.torch.judging import Fault


def made(fault: Fault) -> tuple[str, ...]:
    """How a step was made that was found later."""
    late = fault.late
    if late is None:
        return ()
    if late.graph:
        spoilt = f"; {count_text(late.spoilt, 'parameter')} NaN or Inf after it" if late.spoilt else ""
        moved = f"weights were moved by step {fault.step}" if late.moved else f"step {fault.step} was passed over"
        return (f"inside a CUDA graph: whynan sees the step only after it; {moved}{spoilt}",)
    if not late.moved:
        return (f'found one step late: sync="deferred"; step {fault.step} was passed over and has moved no weight',)
    return (f'found one step late: sync="deferred", and {late.moved}; weights were moved by step {fault.step}',)


def refused_late(fault: Fault) -> list[str]:
    """Why what led to the step cannot be run again, where that is so."""
    late = fault.late
    if late is None or (not late.moved and not late.graph):
        return []
    if late.graph:
        return ["no replay: what runs in a CUDA graph is not run from its source; without the graph it is"]
    return ["no replay: the weights are no longer those that the step began with"]


def advised(fault: Fault) -> tuple[str, ...]:
    """What would have explained a step that was found too late for it."""
    late = fault.late
    return (
        ()
        if late is None or late.graph
        else ('sync="step" finds such a step before it is made, and explains it there',)
    )


def compared(fault: Fault) -> str:
    """What was not compared of a replay and its step."""
    if fault.late is None or not fault.judged.bad:
        return ""
    return ' (which gradients, not which of their elements: sync="deferred")'
