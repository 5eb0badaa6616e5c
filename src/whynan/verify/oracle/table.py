"""One row for every operator that exact values are known of, and which of them works on each element alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.ops.names import base_name, op_type
from whynan.ops.spelling import ALIASES
from whynan.ops.table import ONNX as ONNX_ROWS
from whynan.ops.table import TORCH
from whynan.verify.oracle.calls import Unsupported
from whynan.verify.oracle.layers import LAYERS
from whynan.verify.oracle.linear import LINEAR
from whynan.verify.oracle.movement import MOVES, ONNX_MOVES, VIEWS
from whynan.verify.oracle.onnx import ONNX
from whynan.verify.oracle.pointwise import ACTIVATIONS, POINTWISE
from whynan.verify.oracle.rows import ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.verify.oracle.calls import Operator, Program, Step

ATEN: Final[Mapping[str, Operator]] = {**POINTWISE, **ACTIVATIONS, **ROWS, **MOVES, **VIEWS, **LINEAR, **LAYERS}
_ALIASES: Final = {alias: name for alias, name in ALIASES.items() if name in ATEN} | {"fix": "trunc"}
_EXACT: Final = TORCH.having("exact") | ONNX_ROWS.having("exact")
_ADDING: Final = frozenset("scatter_add scatter_reduce linspace index_put".split())
CASTS: Final = frozenset(("_to_copy", "Cast"))


def canonical(op: str) -> str:
    """``clamp`` of ``aten.clip_.Tensor``: one name for all overloads, the in-place ones and those with an ``out``.

    >>> canonical("aten.special_expit.out")
    'sigmoid'
    """
    base = base_name(op)
    if base not in ATEN and not base.startswith("__"):
        base = base.removesuffix("_")
    dunder = base.strip("_") if base.startswith("__") else base
    base = _DUNDERS.get(dunder, dunder)
    plain = base.removeprefix("special_")
    return _ALIASES.get(plain, plain) if base not in ATEN else base


_DUNDERS: Final = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}


def operator(program: Program, step: Step) -> tuple[str, Operator]:
    """The canonical name of a step's operator and its row; raises ``Unsupported`` where there is none."""
    if program.dialect == "onnx":
        name, table = op_type(step.op), ONNX
    else:
        name, table = canonical(step.op), ATEN
    if "foreach" in step.op or name not in table:
        raise Unsupported(step.op)
    return name, table[name]


def rounds(name: str) -> bool:
    """Whether an operator makes new numbers, which are rounded: no view, no move, no choice."""
    return (
        name in _ADDING or name in CASTS or not (name in _EXACT or name in MOVES or name in VIEWS or name in ONNX_MOVES)
    )
