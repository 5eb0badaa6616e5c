"""What stands in for the source of a graph, and for the counters of the engine's values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whynan.capture.onnx.counts import bad_mask, dtype_name, is_array, is_floating, nan_mask
from whynan.capture.onnx.execution import Counters

if TYPE_CHECKING:
    from whynan.capture.onnx.execution import Node, Value
    from whynan.records import Site


class NoSites:
    """Knows of no source: nodes are shown by their own names, or by what they write."""

    def site(self, node: Node, output: str) -> tuple[Site | None, Site | None, str | None, str, str, str]:
        """No place, and the names as they are."""
        return None, None, None, node.name or next((o for o in node.outputs if o), node.op), output, node.op

    def fusion_note(self, node: Node) -> str | None:
        """Nothing."""
        return None

    def is_inserted(self, node: Node) -> bool:
        """No."""
        return False


def counters_of(value: Value) -> Counters:
    """Counters that tell only how many elements there are, and how many are bad."""
    if not is_array(value) or isinstance(value, list) or value is None:
        return Counters("string", (), 0)
    tensor = np.asarray(value)
    shape = tuple(int(s) for s in tensor.shape)
    nan = int(np.count_nonzero(nan_mask(tensor))) if is_floating(tensor) else 0
    infinite = int(np.count_nonzero(bad_mask(tensor))) - nan if is_floating(tensor) else 0
    return Counters(dtype_name(tensor.dtype), shape, int(tensor.size), n_nan=nan, n_posinf=infinite)
