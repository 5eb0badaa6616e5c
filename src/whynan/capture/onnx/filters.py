"""The weights of convolutions in blocks of channels, as the model has them.

ONNX Runtime keeps the weights of such a convolution in the order in which they are read. Where the channels that come
in are fewer than a block, and where each goes out by itself, they are O / b, I, H, W, b; else O / b, I / b, H, W, b, b
with the block of what comes in before that of what goes out. Channels are filled up to whole blocks with zeros.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whynan.capture.onnx.layout import NCHWC, block_size
from whynan.capture.onnx.schemas import attribute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.execution import Node, Tensor, Value


def is_blocked(node: Node) -> bool:
    """Whether a node is a convolution whose weights lie in blocks."""
    return node.domain == NCHWC and node.op == "Conv"


def as_meant(node: Node, inputs: Sequence[Value], channels: int | None) -> list[Value]:
    """The operands of a node, the weights of a convolution in the order that the model has them in.

    ``channels`` are those of its output; None where that is not known. Then nothing is known of the operands.
    """
    if not is_blocked(node):
        return list(inputs)
    given, weight = np.asarray(inputs[0]), np.asarray(inputs[1])
    ordered = None
    if channels is not None and given.ndim == weight.ndim == 4:
        ordered = in_model_order(weight, (channels, given.shape[1]), int(attribute(node, "group", 1)), block_size())
    if ordered is None:
        return [None] * len(inputs)
    bias = [np.asarray(value)[:channels] if value is not None else None for value in inputs[2:3]]
    return [given, ordered, *bias, *inputs[3:]]


def in_model_order(weight: Tensor, channels: tuple[int, int], groups: int, size: int) -> Tensor | None:
    """The weights as O, I, H, W, without what they are filled up with; None where they lie in no such blocks.

    ``channels`` are those that go out and those that come in.
    """
    out, inward, h, w = (int(side) for side in weight.shape)
    leaves, comes = channels[0], channels[1] // max(1, groups)
    if not size or out % size or out < leaves or inward < comes:
        return None
    alone = groups > 1 and inward == 1 and leaves == groups
    if alone or (groups == 1 and inward < size):
        found = weight.reshape(out // size, inward, h, w, size).transpose(0, 4, 1, 2, 3)
    elif inward % size == 0:
        blocks = weight.reshape(out // size, inward // size, h, w, size, size)
        found = blocks.transpose(0, 5, 1, 4, 2, 3)
    else:
        return None
    return found.reshape(out, inward, h, w)[:leaves, :comes]
