"""How Python spells ATen's operators: symbols, aliases, and functions that dispatch operators of other names."""

from __future__ import annotations

import ast
import re
from typing import Final

from whynan.ops.table import TORCH

_SYMBOLS: Final = {getattr(ast, symbol): name for name, symbol in TORCH.column("symbol").items()}
SYMBOLS: Final[dict[type[ast.operator], str]] = {s: n for s, n in _SYMBOLS.items() if issubclass(s, ast.operator)}
COMPARISONS: Final[dict[type[ast.cmpop], str]] = {s: n for s, n in _SYMBOLS.items() if issubclass(s, ast.cmpop)}
REFLECTED: Final = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
"""What a tensor on the right is asked for where the left is a number: ``0 < t`` is ``t.__gt__(0)``."""

UNARY: Final[dict[type[ast.unaryop], frozenset[str]]] = {
    ast.USub: frozenset({"neg"}),
    ast.Invert: frozenset({"bitwise_not", "logical_not"}),
}

BUILTINS: Final = frozenset({"abs", "pow"})
"""Python's own functions that ask a tensor for the operator of their name."""

_NONFINITE: Final = re.compile(r"(?<![^\W_])[np]?(?:nan|inf|infinity)(?!\w)(?!\s*\()", re.IGNORECASE)
"""``inf``, ``"NaN"``, ``np.NINF``, ``NEG_INF``, and neither ``info`` nor ``nan_to_num(x)``."""

_PREFIXES: Final = ("linalg_", "special_", "native_", "fused_")


ALIASES: Final = TORCH.names("alias")
"""Functions of PyTorch's that have several names, by the other names."""
_DISPATCHED_NAMES: Final = TORCH.names("dispatched")
"""Operators that a function or a method of another name dispatches, by their names."""

OPERANDS: Final = frozenset(
    "A B bias batch1 batch2 condition end exponent index indices input key mask mat mat1 mat2 max min other pos_weight "
    "query running_mean running_var self source src target tensor tensor1 tensor2 tensors value values vec vec1 vec2 "
    "weight x1 x2".split()
)
"""Schema arguments that are values; the others say how to compute."""

MOST_POSITIONAL: Final = {"addcdiv": 3, "addcmul": 3}
"""How many arguments a method takes by position, the tensor included, where its schema has more."""

OPTIONAL: Final = frozenset({"clamp"})
"""Operators all of whose operands after the first may be left out."""

Signature = tuple[tuple[str, ...], dict[str, dict[str, str]]]
_CALL: Final = re.compile(r"(\w+)\(([^)]*)\)")


def _dispatched(text: str) -> Signature:
    parameters, _, calls = text.partition(":")
    pairs = {operator: arguments.split(",") for operator, arguments in _CALL.findall(calls)}
    return tuple(parameters.split(",")), {op: dict(p.split("=", 1) for p in given) for op, given in pairs.items()}


DISPATCHED: Final = {name: _dispatched(text) for name, text in TORCH.column("dispatches").items()}
"""By function its parameters in Python, and for each operator that it dispatches on them (not on something computed
from them) which of the operator's arguments is which parameter."""


def base_of(op_name: str) -> str:
    """``aten.div_.Tensor`` -> ``div_``; a name without namespace and overload is its own."""
    parts = op_name.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def canonical(name: str) -> str:
    """One name for all spellings of an operator: ``div`` for ``true_divide``, ``div_`` and ``__truediv__``."""
    name = name.strip("_")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return ALIASES.get(name) or _DISPATCHED_NAMES.get(name, name)


def spells_nonfinite(text: str) -> bool:
    """Whether an expression names a NaN or an Inf."""
    return _NONFINITE.search(text) is not None
