"""Whether a bad number comes or goes with the optimisation of a graph: one comparison with the graph as written."""

# pyright: strict

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.masks import is_array
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.onnx.engine import EngineSettings

Badness = dict[str, bytes]
"""Of every output which elements are bad, as bits; empty where none is."""


def difference(settings: EngineSettings, feeds: Mapping[str, Any], outputs: Mapping[str, Any]) -> Note | None:
    """What is to be said of the outputs of the optimised graph beside those of the graph as written; None if alike.

    Optimisation is to blame only where an output turns bad or finite by it, not where it is bad in other elements.
    """
    from whynan.capture.onnx.engine import bare

    found = badness(outputs)
    try:
        written = badness(bare(replace(settings, level="disabled"), feeds))
    except RunError:
        return None
    if written == found:
        return None
    turned = [name for name, bits in found.items() if bool(bits) != bool(written.get(name))]
    if not turned:
        others = tuple(name for name, bits in found.items() if bits != written.get(name))
        return Note.of("optimisation_elsewhere", outputs=others)
    if any(found[name] for name in turned):
        return Note.of("optimisation_bears")
    return Note.of("optimisation_cures")


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
