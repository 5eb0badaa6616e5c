"""The part of an input that one element of a convolution or a pooling looks at."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whynan.capture.onnx.schemas import attribute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.execution import Node


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
