"""What the names that ONNX Runtime gives to nodes and values say of the nodes and values that they were made from."""

# pyright: strict

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

CAST: Final = "InsertedPrecisionFreeCast_"
"""Before the name of a value that is another one in a wider type."""
_TOKEN: Final = re.compile(r"_token_\d+")
_BRANCH: Final = re.compile(r"^_if_(?:then_branch|else_branch)_")
_BLOCKED: Final = re.compile(r"_(?:bn_|mul_)?nchwc$")
_FUSED: Final = re.compile(r"/[A-Z]\w*(?:Fusion|Optimizer|Transformer)\w*/?$|/duplicated$")
_REORDERED: Final = re.compile(r"^reorder(?:_token_\d+)?$")


def plain(name: str) -> str:
    """A name without the numbers that were put in to tell it from others."""
    return _TOKEN.sub("", name)


def in_function(function: str, name: str) -> str:
    """What a value of a function is called once its call is opened up, without numbers."""
    return f"_inlfunc_{plain(function.rpartition('::')[2])}_{plain(name)}"


def is_cast(name: str) -> bool:
    """Whether this is the name of a value that was put into a wider type for a kernel that has no other."""
    return name.startswith(CAST)


def is_reordered(name: str) -> bool:
    """Whether this is the name of a value in blocks of channels."""
    return _REORDERED.match(name) is not None


def of_value(name: str) -> Iterator[str]:
    """The names, without numbers, of the values that a value may be, the likeliest first."""
    last = ""
    name = plain(name)
    while name and name != last:
        yield name
        last = name
        name = name.removeprefix(CAST)
        name = _BRANCH.sub("", name)
        name = _FUSED.sub("", name)


def of_node(name: str) -> Iterator[str]:
    """The names, without numbers, of the nodes that a node was made from."""
    yield from of_value(name)


def blocked(name: str) -> str | None:
    """The value that a node on blocks of channels was made for, by the name of the node; None for another node."""
    name = plain(name)
    found = _BLOCKED.search(name)
    return name[: found.start()] if found else None


_PREFIXES: Final = (
    "QLinear",
    "Fused",
    "DynamicQuantize",
    "Nhwc",
    "SimplifiedSkip",
    "Skip",
    "Simplified",
    "Bias",
    "Fast",
)
_SUFFIXES: Final = ("IntegerToFloat", "Integer", "NBits")
_KIN: Final = {
    "QuickGelu": ("Sigmoid", "Mul"),
    "FastGelu": ("Tanh", "Gelu", "Erf"),
    "BiasGelu": ("Gelu", "Erf"),
    "Gelu": ("Gelu", "Erf"),
    "BiasSoftmax": ("Softmax",),
    "LayerNormalization": ("LayerNormalization", "Sqrt", "Div"),
    "SimplifiedLayerNormalization": ("RMSNormalization", "Sqrt", "Div"),
    "SkipLayerNormalization": ("LayerNormalization", "Sqrt", "Div"),
    "SkipSimplifiedLayerNormalization": ("RMSNormalization", "Sqrt", "Div"),
    "Attention": ("Softmax", "Attention"),
    "MultiHeadAttention": ("Softmax", "Attention"),
    "GroupQueryAttention": ("GroupQueryAttention", "Attention", "Softmax"),
    "Gemm": ("Gemm", "MatMul"),
    "FusedGemm": ("Gemm", "MatMul"),
    "TransposeMatMul": ("MatMul",),
    "Split": ("Split", "Gather", "Slice"),
    "Slice": ("Slice", "Gather"),
    "HardSigmoid": ("HardSigmoid", "HardSwish"),
}


def kin(op: str) -> tuple[str, ...]:
    """The types of the nodes that a node of this type may have been made from, the one it computes most like first."""
    found = [op, *_KIN.get(op, ())]
    stem = op
    for prefix in _PREFIXES:
        stem = stem.removeprefix(prefix)
    for suffix in _SUFFIXES:
        stem = stem.removesuffix(suffix)
    found.append(stem)
    return tuple(dict.fromkeys(part for part in found if part))
