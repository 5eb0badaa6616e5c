"""Terms: expressions of source or of a graph, with one form for the many spellings of one computation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from whynan.ops import signatures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# -- An expression as a term: one form for the many spellings of one computation ---------------------------------------


Key = object
Nodes = frozenset[Any]
NONE: Nodes = frozenset()


@dataclass(frozen=True, eq=False)
class Term:
    """An operator and its operands by parameter; a ``number``; a ``leaf``, which is any other expression.

    Sums (``add``) and products (``mul``) have any number of operands in any order, and no other sum or product directly
    in them; what is divided by is a ``pow`` to a negative number, its ``origin`` the divisor. In a pattern a
    ``variable`` stands for any term.

    ``node`` is what the term is written as (an expression of source, a value of a graph), None for a part that is
    written nowhere; ``own`` are the operator nodes that the term is made of, its operands apart. A ``hidden`` term is
    computed within an operator (``1 + x`` in ``log1p(x)``).
    """

    name: str
    children: tuple[tuple[str, Term], ...] = ()
    value: float = 0.0
    text: str = ""
    key: Key = None
    node: Any = None
    own: Nodes = NONE
    hidden: bool = False
    origin: Term | None = None

    @property
    def operands(self) -> tuple[Term, ...]:
        """The operands, without their parameters' names."""
        return tuple(child for _, child in self.children)

    def child(self, parameter: str) -> Term | None:
        """The operand that is given for a parameter."""
        return next((child for name, child in self.children if name == parameter), None)


MULTIPLIED: Final = "multiplied"
"""The ``text`` of a square that is a product: its gradient is in range for longer than that of a power."""


def number(value: float, node: Any = None) -> Term:
    """A constant."""
    return Term("number", value=float(value), key=("number", float(value)), node=node)


def apply_operator(
    name: str,
    children: Iterable[tuple[str, Term]],
    node: Any = None,
    *,
    own: Nodes = NONE,
) -> Term:
    """An operator on its operands."""
    given = tuple(children)
    return Term(name, given, key=(name, tuple((p, c.key) for p, c in given)), node=node, own=own)


def sum_of(terms: Sequence[Term], node: Any = None, *, own: Nodes = NONE, hidden: bool = False) -> Term:
    """The sum of terms; numbers are added up, sums in it opened."""
    constant, items, nodes = 0.0, list[Term](), set(own)
    for term in terms:
        inner = term.operands if term.name == "add" else (term,)
        if term.name == "add":
            nodes |= term.own
        for item in inner:
            if item.name == "number":
                constant += item.value
            else:
                items.append(item)
    if constant or not items:
        items.append(number(constant))
    if len(items) == 1:
        return replace(items[0], node=node or items[0].node, own=items[0].own | own)
    key = ("add", tuple(sorted(repr(item.key) for item in items)))
    return Term("add", tuple(("", i) for i in items), key=key, node=node, own=frozenset(nodes), hidden=hidden)


def product_of(factors: Sequence[Term], node: Any = None, *, own: Nodes = NONE) -> Term:
    """The product of factors; numbers are multiplied, products in it opened, equal factors made a square."""
    constant, items, nodes = 1.0, list[Term](), set(own)
    for factor in factors:
        if factor.name == "mul":
            nodes |= factor.own
        for item in factor.operands if factor.name == "mul" else (factor,):
            if item.name == "number":
                constant *= item.value
            else:
                items.append(item)
    items = _square_duplicates(items, own)
    if constant != 1 or not items:
        items.insert(0, number(constant))
    if len(items) == 1:
        return replace(items[0], node=node or items[0].node, own=items[0].own | own)
    key = ("mul", tuple(sorted(repr(item.key) for item in items)))
    return Term("mul", tuple(("", i) for i in items), key=key, node=node, own=frozenset(nodes))


def _square_duplicates(items: list[Term], own: Nodes) -> list[Term]:
    found: list[Term] = []
    for item in items:
        same = next((i for i, other in enumerate(found) if other.key == item.key and item.name != "pow"), None)
        if same is None:
            found.append(item)
        else:
            found[same] = replace(power(found[same], number(2), own=own), text=MULTIPLIED)
    return found


def power(
    base: Term,
    exponent: Term,
    node: Any = None,
    *,
    own: Nodes = NONE,
    divided: bool = False,
) -> Term:
    """A power; ``divided`` says that it is a divisor."""
    origin = base if divided else None
    if exponent.name == "number":
        if base.name == "number" and (base.value > 0 or exponent.value == int(exponent.value)) and base.value:
            return number(base.value**exponent.value)
        inner = base.child("exponent") if base.name == "pow" else None
        if exponent.value == -1 and inner is not None and inner.name == "number":
            found = power(base.operands[0], number(-inner.value), node, own=own | base.own)
            return replace(found, origin=origin)
        if exponent.value == 1:
            return replace(base, own=base.own | own)
    found = apply_operator("pow", (("input", base), ("exponent", exponent)), node, own=own)
    return replace(found, origin=origin)


def negate(term: Term) -> Term:
    """The term with the other sign."""
    return product_of([number(-1), term])


def coefficient(term: Term) -> tuple[float, list[Term]]:
    """The number that a product has as a factor, and its other factors."""
    if term.name == "number":
        return term.value, []
    if term.name != "mul":
        return 1.0, [term]
    constant = math.prod(item.value for item in term.operands if item.name == "number")
    return constant, [item for item in term.operands if item.name != "number"]


# -- The one form that the spellings of an operator share --------------------------------------------------------------


_EXPONENTS: Final = {"sqrt": 0.5, "rsqrt": -0.5, "square": 2.0, "reciprocal": -1.0}


def canonical_term(name: str, given: Sequence[tuple[str, Term]], node: Any, own: Nodes) -> Term:
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
            return apply_operator("log", [("input", sum_of([number(1), first], own=own, hidden=True))], node, own=own)
        if name == "expm1":
            return sum_of([apply_operator("exp", [("input", first)], own=own), number(-1)], node, own=own)
        if name in ("log2", "log10"):
            scale = 1 / math.log(2 if name == "log2" else 10)
            return product_of([number(scale), apply_operator("log", [("input", first)], own=own)], node, own=own)
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
        return apply_operator("mean", [("input", power(difference, number(2), own=own))], node, own=own)
    return apply_operator(name, given, node, own=own)


def bind_arguments(name: str, values: Sequence[Term], keywords: dict[str, Term]) -> list[tuple[str, Term]] | None:
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
