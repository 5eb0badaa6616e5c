"""Calls: which operator of PyTorch's a call in the source is of."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from whynan.ops.signatures import PURE, canonical
from whynan.source.syntax import dotted

if TYPE_CHECKING:
    from whynan.source.syntax import Syntax
    from whynan.source.text import Place

_OWN_METHODS: Final = PURE | {"where", "eye", "new_zeros"}


def function_of(place: Syntax, callee: ast.expr) -> str | None:
    """The name of a function of torch's, as it is spelled; None for a method or a function of somebody else's."""
    names = place.meaning(callee)
    if names is not None:
        return names[-1] if names[0] == "torch" and len(names) > 1 else None
    own = dotted(callee)
    if own in (["abs"], ["pow"]) and own[0] not in place.assigned_names and own[0] not in place.imports:
        return own[0]
    return None


def is_method(place: Place, call: ast.Call) -> bool:
    """Whether a call reads as one of a tensor's own methods."""
    if not isinstance(call.func, ast.Attribute):
        return False
    receiver = call.func.value
    if isinstance(receiver, ast.Name) and receiver.id in ("self", "cls"):
        return False
    if isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Name) and receiver.func.id == "super":
        return False
    names = dotted(receiver)
    if names is not None and (names[0] in place.imports or place.meaning(receiver) is not None):
        return False
    return canonical(call.func.attr)[0] in _OWN_METHODS


def operator_of(place: Place, call: ast.Call) -> tuple[str | None, bool]:
    """The operator that a call is of, and whether it writes in place; no name for what is no operator known here."""
    function = function_of(place, call.func)
    if function is not None:
        return canonical(function)
    if isinstance(call.func, ast.Attribute) and is_method(place, call):
        return canonical(call.func.attr)
    return None, False
