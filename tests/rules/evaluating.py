"""The language of fixes on tensors: an expression's value, where its variables are known."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

_SPACES: Final = (F, torch, torch.linalg, torch.special, torch.Tensor)
"""Where an operator is looked for, by its name."""


class _Missing:
    """Stands for an argument that a program does not give."""


MISSING: Final = _Missing()


class _Limits:
    """``finfo(x)``."""

    def __new__(cls, x: Tensor) -> Any:
        return torch.finfo(x.dtype)


def freedom(x: Tensor, d: int) -> int:
    """The correction of a variance: 1, or 0 over 1 element."""
    return min(x.shape[d] - 1, 1)


def count(x: Tensor, d: int | None = None) -> int:
    """The number of elements, of all or over a dimension, at least 1."""
    return max(x.numel() if d is None else x.shape[d], 1)


def operator(name: str) -> Any:
    """What a name that is called means; raises ``NameError`` where PyTorch has no function of that name."""
    if name == "finfo":
        return _Limits
    if name in ("freedom", "count"):
        return {"freedom": freedom, "count": count}[name]
    found = next((f for s in _SPACES if callable(f := getattr(s, name, None)) and not isinstance(f, torch.dtype)), None)
    if found is None:
        raise NameError(name)

    def call(*given: Any, **named: Any) -> Any:
        kept = [v for v in given if v is not MISSING]
        return found(*kept, **{k: v for k, v in named.items() if v is not MISSING})

    return call


def names(text: str) -> tuple[set[str], set[str]]:
    """The operators and the variables of an expression."""
    tree = ast.parse(text, mode="eval")
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return called, {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - called


def evaluated(text: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression."""
    called, _ = names(text)
    space = {name: operator(name) for name in called} | {"math": math, **variables}
    # what torch imports on its first use it asks the frame for
    return eval(compile(text, "<fix>", "eval"), {"__builtins__": {"__import__": __import__}}, space)
