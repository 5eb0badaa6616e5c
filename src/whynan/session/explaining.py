"""The run that explains what is bad: without the rewriting of ONNX Runtime after which no file has the numbers."""

# pyright: strict

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from whynan.records import Note
from whynan.session.optimising import badness

if TYPE_CHECKING:
    from whynan.capture.onnx.engine import EngineSettings, Outcome
    from whynan.traces import Trace

_BLOCKS: Final = "NchwcTransformer"
_MOST: Final = 4
"""Constants that are named in a line before the rest is only counted."""


def explaining(settings: EngineSettings, outcome: Outcome, found: Trace) -> EngineSettings | None:
    """How to run a model so that what was found in it can be told as its file has it; None where it was run so.

    A bad constant that was computed before the run is looked for in the graph as it is written; any other bad number
    only without the layout in blocks of channels, in which elements lie elsewhere.
    """
    if outcome.computed:
        return replace(settings, level="disabled")
    if outcome.blocked and is_bad(found):
        return replace(settings, disabled_optimizers=(*settings.disabled_optimizers, _BLOCKS))
    return None


def is_bad(found: Trace) -> bool:
    """Whether a run has more to tell than infinities that were given."""
    return bool(found.silent or found.unexplained) or any(birth.label_kind != "literal" for birth in found.births)


def agree(outcome: Outcome, other: Outcome) -> bool:
    """Whether the same outputs of two runs are bad."""
    return _outputs(outcome) == _outputs(other)


def explained(outcome: Outcome) -> Note:
    """What is said where the run that explains is told of."""
    if outcome.computed:
        return _computed("computed_before", outcome)
    return Note.of("without_blocks")


def unexplained(outcome: Outcome) -> Note:
    """What is said where that run could not be had, or other outputs are bad in it."""
    if outcome.computed:
        return _computed("computed_before_otherwise", outcome)
    return Note.of("in_blocks")


def _outputs(outcome: Outcome) -> set[str]:
    return {name for name, bits in badness(outcome.outputs).items() if bits}


def _computed(kind: str, outcome: Outcome) -> Note:
    names = outcome.computed
    return Note.of(kind, names=names[:_MOST], more=max(0, len(names) - _MOST))
