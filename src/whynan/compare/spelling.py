"""The names of operators on both sides: one word where torch and ONNX mean the same."""

from __future__ import annotations

from typing import Final


def base(op: str) -> str:
    """``linear`` of ``aten.linear.default``."""
    parts = op.split(".")
    return parts[1] if len(parts) > 2 and parts[0] == "aten" else op


_SPELLINGS: Final = {
    "conv1d": "conv",
    "conv2d": "conv",
    "conv3d": "conv",
    "convolution": "conv",
    "linear": "gemm",
    "addmm": "gemm",
    "mm": "matmul",
    "bmm": "matmul",
    "layer_norm": "layernormalization",
    "batch_norm": "batchnormalization",
    "_native_batch_norm_legit_no_training": "batchnormalization",
    "permute": "transpose",
    "view": "reshape",
    "_unsafe_view": "reshape",
    "avg_pool1d": "averagepool",
    "avg_pool2d": "averagepool",
    "masked_fill": "where",
    "embedding": "gather",
}


def spelled(op: str) -> str:
    """One word for an operator in torch and in ONNX, where there is one."""
    name = base(op)
    return _SPELLINGS.get(name, name.lower())
