"""The names of operators: taken apart, and those of ONNX in ATen's vocabulary, which rules know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from whynan.ops.table import ONNX, TORCH

FUNCTIONS: Final = ONNX.names("function")
"""Which operator is a function of PyTorch's, by the name that the function has."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """An operator by its base name in ATen's vocabulary, and what its operands are called there."""

    base: str
    operands: Mapping[str, str] = field(default_factory=lambda: {})

    def theirs(self, name: str) -> str:
        """The name in ATen's vocabulary of an operand."""
        return self.operands.get(name, name)


def base_name(name: str) -> str:
    """``aten.add.Tensor`` -> ``add``; a foreach operator gives the name of what it does to each tensor.

    >>> base_name("aten._foreach_add_.List")
    'add_'
    """
    parts = name.split(".")
    base = parts[1] if len(parts) > 1 else name
    return base.removeprefix("_foreach_")


def is_foreach(name: str) -> bool:
    """Whether the operator works on lists of tensors, entry by entry."""
    base = name.split(".")[1] if "." in name else name
    return base.startswith(("_foreach_", "_fused_", "_amp_foreach_"))


def op_type(op: str) -> str:
    """``Div`` of ``Div``, and of ``com.microsoft.Div``.

    >>> op_type("com.microsoft.FusedConv")
    'FusedConv'
    """
    return op.rpartition(".")[2]


@cache
def meaning(op: str) -> Meaning:
    """What an operator is in ATen's vocabulary; one without has its own name in small letters."""
    kind = op_type(op)
    pairs = ONNX.lists("operands").get(kind, ())
    return Meaning(ONNX.column("means").get(kind, kind.lower()), dict(pair.split("=", 1) for pair in pairs))


@cache
def bases(flag: str) -> frozenset[str]:
    """The operators of both tables with a flag, by the base names that rules know."""
    return TORCH.having(flag) | {meaning(op).base for op in ONNX.having(flag)}
