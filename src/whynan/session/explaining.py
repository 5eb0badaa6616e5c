"""The run that explains what is bad: without the rewriting of ONNX Runtime after which no file has the numbers."""

# pyright: strict

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

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


def explained(outcome: Outcome) -> str:
    """What is said where the run that explains is told of."""
    if outcome.computed:
        return (
            f"what is bad in {_named(outcome)} was computed by the optimizer before the run: the graph is told of as it"
            " is written"
        )
    return f"what is bad is told of a run without ONNX Runtime's layout in blocks of channels ({_BLOCKS} disabled)"


def unexplained(outcome: Outcome) -> str:
    """What is said where that run could not be had, or other outputs are bad in it."""
    if outcome.computed:
        return (
            f"what is bad in {_named(outcome)} was computed by the optimizer before the run, and the graph as it is"
            " written gives other bad numbers; --graph original looks at that one"
        )
    return (
        "without ONNX Runtime's layout in blocks of channels other outputs are bad: elements are told where they lie"
        " in the blocks; --graph original looks at the graph as it is written"
    )


def _outputs(outcome: Outcome) -> set[str]:
    return {name for name, bits in badness(outcome.outputs).items() if bits}


def _named(outcome: Outcome) -> str:
    names = outcome.computed
    rest = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + rest
