"""The run that explains: optimisations off where they hide the numbers, and a comparison with the graph as written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.onnx.counts import is_array
from whynan.capture.onnx.execution import RunError
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.onnx.engine import EngineSettings, Outcome
    from whynan.traces import Trace


# -- Whether a bad number comes or goes with the optimisation of a graph: one comparison with the graph as written -----


Badness = dict[str, bytes]
"""Of every output which elements are bad, as bits; empty where none is."""


def difference(settings: EngineSettings, feeds: Mapping[str, Any], outputs: Mapping[str, Any]) -> Note | None:
    """What is to be said of the outputs of the optimised graph beside those of the graph as written; None if alike.

    Optimisation is to blame only where an output turns bad or finite by it, not where it is bad in other elements.
    """
    from whynan.capture.onnx.engine import run_unobserved

    found = badness(outputs)
    try:
        written = badness(run_unobserved(replace(settings, level="disabled"), feeds))
    except RunError:
        return None
    if written == found:
        return None
    turned = [name for name, bits in found.items() if bool(bits) != bool(written.get(name))]
    if not turned:
        others = tuple(name for name, bits in found.items() if bits != written.get(name))
        return Note.create("optimisation_elsewhere", outputs=others)
    if any(found[name] for name in turned):
        return Note.create("optimisation_bears")
    return Note.create("optimisation_cures")


def badness(outputs: Mapping[str, Any]) -> Badness:
    """Which elements are NaN or infinite, of every output."""
    import numpy as np

    made: Badness = {}
    for name, value in outputs.items():
        if not is_array(value) or value.dtype.kind in "iub":
            continue
        with np.errstate(all="ignore"):
            numbers: Any = value if value.dtype.kind in "fc" else value.astype(np.float32)
            bad = ~np.isfinite(numbers)
        made[name] = bytes(np.packbits(bad)) if bad.any() else b""
    return made


# -- The run that explains what is bad: without the rewriting of ONNX Runtime after which no file has the numbers ------


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


def folding_note(outcome: Outcome) -> Note:
    """What is said where the run that explains is told of."""
    if outcome.computed:
        return _computation("computed_before", outcome)
    return Note.create("without_blocks")


def unexplained(outcome: Outcome) -> Note:
    """What is said where that run could not be had, or other outputs are bad in it."""
    if outcome.computed:
        return _computation("computed_before_otherwise", outcome)
    return Note.create("in_blocks")


def _outputs(outcome: Outcome) -> set[str]:
    return {name for name, bits in badness(outcome.outputs).items() if bits}


def _computation(kind: str, outcome: Outcome) -> Note:
    names = outcome.computed
    return Note.create(kind, names=names[:_MOST], more=max(0, len(names) - _MOST))
