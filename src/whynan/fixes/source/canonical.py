"""The one form that the spellings of an operator share."""

# pyright: strict

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from whynan.fixes.source import signatures
from whynan.fixes.source.terms import Nodes, Term, applied, number, power, product_of, sum_of

if TYPE_CHECKING:
    from collections.abc import Sequence

BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.Mod: "remainder",
}
_EXPONENTS: Final = {"sqrt": 0.5, "rsqrt": -0.5, "square": 2.0, "reciprocal": -1.0}
Node = ast.expr | ast.AugAssign


def canonical_term(name: str, given: Sequence[tuple[str, Term]], node: Node | None, own: Nodes) -> Term:
    """An operator on its arguments, in the one form that its spellings share."""
    values = dict(given)
    first = given[0][1] if given else None
    second = values.get("other") or values.get("exponent")
    simple = len(given) == 2 and second is not None and first is not None
    if first is not None and len(given) == 1:
        if name == "clone":
            return replace(first, own=first.own | own) if first.name != "leaf" else first
        if name == "neg":
            return product_of([number(-1), first], node, own=own)
        if name in _EXPONENTS:
            return power(first, number(_EXPONENTS[name]), node, own=own, divided=name == "reciprocal")
        if name == "log1p":
            return applied("log", [("input", sum_of([number(1), first], own=own, hidden=True))], node, own=own)
        if name == "expm1":
            return sum_of([applied("exp", [("input", first)], own=own), number(-1)], node, own=own)
        if name in ("log2", "log10"):
            scale = 1 / math.log(2 if name == "log2" else 10)
            return product_of([number(scale), applied("log", [("input", first)], own=own)], node, own=own)
    if simple and first is not None and second is not None:
        match name:
            case "add":
                return sum_of([first, second], node, own=own)
            case "sub":
                return sum_of([first, product_of([number(-1), second])], node, own=own)
            case "rsub":
                return sum_of([second, product_of([number(-1), first])], node, own=own)
            case "mul":
                return product_of([first, second], node, own=own)
            case "div":
                return product_of([first, power(second, number(-1), own=own, divided=True)], node, own=own)
            case "pow":
                return power(first, second, node, own=own)
            case _:
                pass
    if name in ("clamp_min", "clamp_max"):
        given = [given[0], ("min" if name == "clamp_min" else "max", given[-1][1])]
        name = "clamp"
    if name == "mse_loss" and set(values) == {"input", "target"}:
        difference = sum_of([values["input"], product_of([number(-1), values["target"]])], own=own)
        return applied("mean", [("input", power(difference, number(2), own=own))], node, own=own)
    return applied(name, given, node, own=own)


def bound(name: str, values: Sequence[Term], keywords: dict[str, Term]) -> list[tuple[str, Term]] | None:
    """Arguments by the names of the operator's parameters, in its order; None where they do not fit."""
    parameters = signatures.SIGNATURES.get(name, ("input",))
    if len(values) > len(parameters):
        parameters = (*parameters, *(f"argument{i}" for i in range(len(parameters), len(values))))
    given = dict(zip(parameters, values, strict=False))
    for keyword, value in keywords.items():
        key = keyword
        if keyword not in parameters and signatures.KEYWORDS.get(keyword) in parameters:
            key = signatures.KEYWORDS[keyword]
            if keyword == "unbiased" and value.name == "constant":
                value = number(1 if value.text == "True" else 0)
        if key in given:
            return None
        given[key] = value
    order = {parameter: i for i, parameter in enumerate(parameters)}
    kept = {p: v for p, v in given.items() if not _is_default(p, v)}
    return sorted(kept.items(), key=lambda item: order.get(item[0], len(order)))


def _is_default(parameter: str, value: Term) -> bool:
    if parameter not in signatures.DEFAULTS:
        return False
    default = signatures.DEFAULTS[parameter]
    return (
        value.text == repr(default) if value.name == "constant" else value.value == default and value.name == "number"
    )
