"""Whether a bad number comes or goes with the optimisation of a graph, and with which optimizer."""

# pyright: strict

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from whynan.capture.onnx.execution import RunError, is_tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.onnx.engine import EngineSettings, Outcome

Badness = tuple[tuple[str, bytes], ...]
"""Which elements of the outputs are bad, as bits."""


def blamed(settings: EngineSettings, feeds: Mapping[str, Any], outcome: Outcome) -> tuple[tuple[str, ...], str | None]:
    """The optimizers that make the difference, and what is to be said of it; nothing where there is none."""
    from whynan.capture.onnx.engine import bare

    found = badness(outcome.outputs)
    try:
        written = badness(bare(replace(settings, level="disabled"), feeds))
    except RunError:
        return (), None
    if written == found:
        return (), None
    from whynan.capture.onnx.optimisers import responsible

    def verdict(disabled: tuple[str, ...]) -> Badness:
        return badness(bare(replace(settings, disabled_optimizers=disabled), feeds))

    names = responsible(settings, verdict, found)
    better = bool(_count(found)) > bool(_count(written)) or _count(found) > _count(written)
    what = "bad numbers in the outputs come from optimisation" if better else "optimisation takes bad numbers away"
    by = f": {', '.join(names)}" if names else "; no single optimizer makes the difference"
    hint = "; --graph original looks at the graph as it is written"
    return names, f"{what}{by}{hint}"


def badness(outputs: Mapping[str, Any]) -> Badness:
    """Which elements are NaN or infinite, of every output."""
    import numpy as np

    made: list[tuple[str, bytes]] = []
    for name, value in outputs.items():
        if not is_tensor(value) or value.dtype.kind in "iub":
            continue
        with np.errstate(all="ignore"):
            numbers: Any = value if value.dtype.kind in "fc" else value.astype(np.float32)
            bad = ~np.isfinite(numbers)
        made.append((name, bytes(np.packbits(bad)) if bad.any() else b""))
    return tuple(made)


def _count(found: Badness) -> int:
    return sum(byte.bit_count() for _, bits in found for byte in bits)
