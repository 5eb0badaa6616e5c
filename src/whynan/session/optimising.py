"""Whether a bad number comes or goes with the optimisation of a graph, and with which optimizer."""

# pyright: strict

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.masks import is_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.onnx.engine import EngineSettings

Badness = dict[str, bytes]
"""Of every output which elements are bad, as bits; empty where none is."""
_HINT: Final = "; --graph original looks at the graph as it is written"


def blamed(
    settings: EngineSettings, feeds: Mapping[str, Any], outputs: Mapping[str, Any]
) -> tuple[tuple[str, ...], str | None]:
    """The optimizers without which an output is finite, or bad, and what is to be said of it.

    Where both graphs give bad numbers, and in other elements only, nobody is to blame for them.
    """
    from whynan.capture.onnx.engine import bare

    found = badness(outputs)
    try:
        written = badness(bare(replace(settings, level="disabled"), feeds))
    except RunError:
        return (), None
    if written == found:
        return (), None
    turned = [name for name, bits in found.items() if bool(bits) != bool(written.get(name))]
    if not turned:
        others = ", ".join(name for name, bits in found.items() if bits != written.get(name))
        return (), f"the graph as it is written gives bad numbers too, in other elements of {others}{_HINT}"
    from whynan.capture.onnx.optimisers import responsible

    def verdict(disabled: tuple[str, ...]) -> tuple[bool, ...]:
        without = badness(bare(replace(settings, disabled_optimizers=disabled), feeds))
        return tuple(bool(without.get(name)) for name in turned)

    here = tuple(bool(found[name]) for name in turned)
    names = responsible(settings, verdict, here)
    what = "bad numbers in the outputs come from optimisation" if any(here) else "optimisation takes bad numbers away"
    by = f": {', '.join(names)}" if names else "; no single optimizer makes the difference"
    return names, f"{what}{by}{_HINT}"


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
