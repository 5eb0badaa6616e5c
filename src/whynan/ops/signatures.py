"""The operators as PyTorch names them: their parameters, their other names, and where they are found."""

from __future__ import annotations

from typing import Final

from whynan.ops.spelling import ALIASES
from whynan.ops.table import TORCH

SIGNATURES: Final = TORCH.lists("parameters")
"""The parameters of a function, in PyTorch's order; the first is what its method is called on."""

KEYWORDS: Final = {
    "axis": "dim",
    "keepdims": "keepdim",
    "p": "ord",
    "unbiased": "correction",
    "self": "input",
    "A": "input",
    "x": "input",
}
"""Other names of parameters, where a signature has the second and not the first."""
DEFAULTS: Final[dict[str, object]] = {
    "keepdim": False,
    "dtype": None,
    "correction": 1,
    "alpha": 1,
    "ord": 2,
    "out": None,
    "reduction": "mean",
}
"""What an argument is where it is not given, as a constant."""

UNARY: Final = TORCH.having("unary")
CASTS: Final = TORCH.having("cast")
"""Methods that give the same elements in another dtype or on another device."""
VIEWS: Final = TORCH.having("view")
"""Methods that give the same elements in another shape."""

ELEMENTWISE: Final = TORCH.having("elementwise")
"""Operators each of whose elements depends on the elements of its operands at the same place."""

FRESH: Final = TORCH.having("fresh")
"""Operators whose result shares no memory with an operand."""

PURE: Final = TORCH.having("pure", "unary", "cast", "view") | SIGNATURES.keys()
"""Operators that give the same for the same operands, and change nothing."""

METHODS: Final = TORCH.having("method")
"""Operators that a tensor has as a method of the same name."""

HOMES: Final = TORCH.column("in")
"""Where an operator is found that is not in ``torch``; ``Tensor``: what only a method does."""

MODULES: Final = {
    kind: (name, parameters.replace(",", " "))
    for name, value in TORCH.column("module").items()
    for kind, _, parameters in (value.partition(":"),)
}
"""Classes of ``torch.nn`` without parameters: the function that an instance calls, and the constructor's parameters."""


def canonical(name: str) -> tuple[str, bool]:
    """An operator's one name, and whether it is the spelling that writes in place."""
    in_place = name.endswith("_") and not name.endswith("__")
    base = name.rstrip("_") if in_place else name
    return ALIASES.get(base, base), in_place
