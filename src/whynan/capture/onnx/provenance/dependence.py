"""Element dependence: which elements of a node's output depend on which elements of its operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.onnx.counts import Mask, constant_like, floating, is_array, nan_mask
from whynan.capture.onnx.execution import attribute
from whynan.capture.onnx.provenance.attribution import selection, spread
from whynan.capture.provenance.dependence import Refused
from whynan.ops.onnx import POINTWISE, RESHAPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from whynan.capture.onnx.counts import Key
    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.provenance.interventions import Experiments
    from whynan.capture.onnx.provenance.labels import Labels, Plane


# -- Which elements of what a node wrote depend on some elements of its operands: by place, or by experiment -----------


RISING: Final = "rising"
"""Stands among the numbers to change elements to for a different one in each place, which ties none of them."""


@dataclass(frozen=True, slots=True)
class Source:
    """An operand that holds births or taint: its tensor, the labels, whether they are taint, and what float64 has."""

    tensor: Tensor
    plane: Plane
    tainted: bool
    shadow: NDArray[np.float64] | None = None


def left_out(sources: dict[Key, Source]) -> dict[Key, Source]:
    """Of the sources those elements that are NaN, were born so, and are no number in float64 either."""
    found: dict[Key, Source] = {}
    for key, source in sources.items():
        if source.tainted or not floating(source.tensor):
            continue
        nan = nan_mask(source.tensor)
        if source.shadow is not None and source.shadow.shape == nan.shape:
            nan &= np.isnan(source.shadow)
        plane = np.where(nan, source.plane, np.int32(0))
        if plane.any():
            found[key] = Source(source.tensor, plane, False)
    return found


class Dependence:
    """Asks a node what it makes of other operands."""

    def __init__(self, labels: Labels, experiments: Experiments) -> None:
        self.labels = labels
        self.experiments = experiments

    def on(
        self,
        node: Node,
        inputs: Sequence[Value],
        sources: dict[Key, Source],
        output: Tensor,
        position: int,
        others: tuple[float | str, ...],
    ) -> Plane | None:
        """Which output elements depend on the sources: by position, or by changing the sources to some others."""
        if node.op in POINTWISE:
            return self._by_place(node, inputs, sources, output)
        only = sources.get((0,))
        if node.op in RESHAPES and only is not None and only.plane.size == output.size:
            return only.plane.reshape(output.shape)
        everything = self.labels.intern(
            self.labels.of(s for source in sources.values() for s in self.labels.present(source.plane))
        )
        differs: Mask | None = None
        # an index may happen to be the value that it is changed to: several are tried
        for other in others:
            try:
                again = self.experiments.run(node, inputs, lambda k, t, o=other: _changed(sources.get(k), t, o))[
                    position
                ]
            except (Refused, IndexError):  # nothing is known
                return None
            if not is_array(again) or isinstance(again, list) or again is None:
                return None
            if again.shape != output.shape:
                return np.full(output.shape, everything, dtype=np.int32)
            here: Mask = np.asarray(again != output)
            differs = here if differs is None else differs | here
        assert differs is not None
        return np.where(differs, np.int32(everything), np.int32(0))

    def _by_place(
        self, node: Node, inputs: Sequence[Value], sources: dict[Key, Source], output: Tensor
    ) -> Plane | None:
        chosen = selection(node, inputs)
        plane = np.zeros(output.shape, dtype=np.int32)
        for key, source in sources.items():
            own = spread(source.plane, output.shape)
            if own is None:
                return None
            if key[0] in chosen:
                own = np.where(chosen[key[0]], own, np.int32(0))
            plane = self.labels.union(plane, own)
        return plane


def _changed(source: Source | None, tensor: Tensor, other: float | str) -> Tensor:
    if source is None:
        return tensor
    if tensor.dtype.kind == "b":
        return np.where(source.plane != 0, ~tensor, tensor)
    if isinstance(other, str):
        rising = np.linspace(0, 1, tensor.size).reshape(tensor.shape).astype(tensor.dtype)
        return np.where(source.plane != 0, rising, tensor)
    return np.where(source.plane != 0, constant_like(tensor, other), tensor)


# -- The part of an input that one element of a convolution or a pooling looks at --------------------------------------


def window(node: Node, sizes: Sequence[int], kernel: Sequence[int], place: Sequence[int]) -> tuple[slice, ...]:
    """For each spatial dimension the elements under the kernel at a place of the output, what is padding left out.

    The whole dimension where the padding is left to be derived (``auto_pad``).
    """
    rank = len(sizes)
    if attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID") or len(kernel) != rank or len(place) != rank:
        return (slice(None),) * rank
    strides: Any = attribute(node, "strides") or [1] * rank
    dilations: Any = attribute(node, "dilations") or [1] * rank
    pads: Any = attribute(node, "pads") or [0] * (2 * rank)
    found: list[slice] = []
    for d in range(rank):
        start = place[d] * strides[d] - pads[d]
        stop = start + (kernel[d] - 1) * dilations[d] + 1
        while start < 0:
            start += dilations[d]
        found.append(slice(min(start, sizes[d]), max(0, min(stop, sizes[d])), dilations[d]))
    return tuple(found)
