"""Structures: patterns of terms in normal form, as the rules state what they know.

A structure is an expression in Python's syntax, and is brought into normal form itself. A lower-case name stands for
any term: in a product for one factor, in a sum for one part. An upper-case name stands for a number: a factor, an
exponent, a summand; P and Q for one above 0, N for one below. ``...`` stands for whatever else a product, a sum or a
call holds, ``each(...)`` for a sum of any parts that are so, ``~`` for the negation of a mask; ``|`` is between
alternatives, of functions too: ``(softmax | sigmoid)(A * x + ...)``.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from whynan.expr.normal import (
    NEGATIONS,
    REFORMED,
    NormalForm,
    add,
    call,
    factors,
    leaf,
    multiply,
    number,
    power,
    scale,
    split_coefficient,
)

_OTHERS: Final = leaf("$...")
_CLOSE: Final = 1e-6
_SIGNS: Final = {"P": 1, "Q": 1, "N": -1}


@dataclass(frozen=True)
class Bindings:
    """What the names of a structure stand for."""

    terms: Mapping[str, NormalForm] = field(default_factory=dict[str, NormalForm])
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])

    def one_sign(self) -> bool:
        """Whether all the numbers are above 0, or all below."""
        return len({value > 0 for value in self.numbers.values()}) == 1 and 0 not in self.numbers.values()


Condition = Callable[[Bindings], bool]


def matches(structure: str, term: NormalForm, **known: NormalForm) -> Iterator[Bindings]:
    """Every way in which a term has a structure, of which some names may be known."""
    wanted = _read(structure)
    named = frozenset(name for name, value in known.items() if value.number is None)
    needed = _needed(wanted, named) if len(named) == len(known) else frozenset[str]()
    return _match(wanted, term, Bindings(known)) if needed <= term.calls else iter(())


def fits(structure: str, *terms: NormalForm, where: Condition = lambda _: True, **known: NormalForm) -> bool:
    """Whether one of the terms has a structure, with such bindings."""
    return any(where(found) for term in terms for found in matches(structure, term, **known))


def operand(structure: str, term: NormalForm) -> NormalForm | None:
    """The term that the name ``x`` of a structure stands for; None where a term has it not."""
    return next((found.terms["x"] for found in matches(structure, term)), None)


# -- From text to a term whose leaves are names ------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _read(text: str) -> NormalForm:
    return _term(ast.parse(text, mode="eval").body)


def _term(node: ast.expr) -> NormalForm:
    match node:
        case ast.Constant(value=int() | float() as value):
            return number(value)
        case ast.Name(id=name):
            return leaf(f"${name}")
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return scale(-1, _term(inner))
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            return call("|", *(call(name, _term(inner)) for name in NEGATIONS))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return call("|", _term(left), _term(right))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return add(_term(left), _term(right))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return add(_term(left), scale(-1, _term(right)))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return multiply(_term(left), _term(right))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return multiply(_term(left), power(_term(right), -1))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_term(left), _term(right))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return call(name, *map(_term, arguments))
        case ast.Call(func=ast.BinOp(left=left, right=right), args=arguments):
            return call("|", *(_term(ast.Call(one, arguments, [])) for one in (left, right)))
        case _:
            return _OTHERS


def _power(base: NormalForm, exponent: NormalForm) -> NormalForm:
    return call("**", base, exponent) if exponent.number is None else power(base, exponent.number)


def _is_name(term: NormalForm) -> bool:
    return term.kind == "leaf" and term.name.startswith("$")


def _is_number(term: NormalForm) -> bool:
    return _is_name(term) and term.name.isupper()


@lru_cache(maxsize=4096)
def _is_open(term: NormalForm) -> bool:
    """Whether it has names or alternatives."""
    return _is_name(term) or term.is_call("|", "each") or any(map(_is_open, term.arguments))


@lru_cache(maxsize=4096)
def _names(structure: NormalForm) -> tuple[str, ...]:
    """The names in it, each as often as it stands there."""
    own = (structure.name[1:],) if _is_name(structure) and structure != _OTHERS else ()
    return (*own, *(name for part in structure.arguments for name in _names(part)))


@lru_cache(maxsize=4096)
def _needed(structure: NormalForm, known: frozenset[str]) -> frozenset[str]:
    """Functions that every term of a structure has, where no number is known.

    Where a name stands in two places, or is known, what it stands for may bring the function around it into another
    form: ``log(sum(x))`` of an exponential is ``logsumexp``.
    """
    names = _names(structure)
    calls = frozenset(_calls(structure))
    return calls if len({*names, *known}) == len(names) + len(known) else calls - REFORMED


def _calls(structure: NormalForm) -> Iterator[str]:
    if structure.is_call("|", "each"):
        return
    if structure.kind == "call" and structure.name != "**":
        yield structure.name
    for part in structure.arguments:
        if part == _OTHERS and structure.kind == "call":
            # what follows is not asked for
            return
        yield from _calls(part)


def _fill(structure: NormalForm, found: Bindings) -> NormalForm:
    """A structure with what is known in place of the names."""
    if not any(name in found.terms or name in found.numbers for name in _names(structure)):
        return structure
    if structure.kind == "leaf":
        name = structure.name[1:]
        value = found.numbers.get(name)
        return found.terms.get(name, structure) if value is None else number(value)
    filled = [(_fill(part, found), value) for part, value in structure.parts]
    if structure.kind == "sum":
        return add(number(structure.constant), *(scale(factor, part) for part, factor in filled))
    if structure.kind == "product":
        return multiply(*(power(part, exponent) for part, exponent in filled))
    inner = [part for part, _ in filled]
    return _power(*inner) if structure.name == "**" else call(structure.name, *inner)


# -- Matching ----------------------------------------------------------------------------------------------------------


_Part = tuple[NormalForm, float]
"""A part of a sum with its factor, or of a product with its exponent."""
_Step = Callable[[_Part, _Part, Bindings], Iterator[Bindings]]


def _match(structure: NormalForm, term: NormalForm, found: Bindings) -> Iterator[Bindings]:
    structure = _fill(structure, found)
    if not _is_open(structure):
        if structure == term:
            yield found
    elif structure.is_call("|"):
        for one in structure.arguments:
            yield from _match(one, term, found)
    elif structure.is_call("each"):
        if all(any(True for _ in _match(structure.arguments[0], part, found)) for part in _summands(term)):
            yield found
    elif _is_number(structure):
        if term.number is not None:
            yield from _bind(structure, term.number, found)
    elif structure.kind == "leaf":
        yield Bindings({**found.terms, structure.name[1:]: term}, found.numbers)
    elif structure.kind == "sum":
        yield from _match_sum(structure, term, found)
    elif structure.kind == "product" or structure.is_call("**"):
        yield from _match_product(structure, term, found)
    elif term.is_call(structure.name):
        yield from _match_arguments(structure.arguments, term.arguments, found)


def _bind(name: NormalForm, value: float, found: Bindings) -> Iterator[Bindings]:
    if value * _SIGNS.get(name.name[1:], value) > 0 or (not value and name.name[1:] not in _SIGNS):
        yield Bindings(found.terms, {**found.numbers, name.name[1:]: value})


def _summands(term: NormalForm) -> list[NormalForm]:
    if term.kind != "sum":
        return [term]
    return [*(scale(factor, part) for part, factor in term.parts), *([number(term.constant)] if term.constant else [])]


def _match_arguments(wanted: Sequence[NormalForm], given: Sequence[NormalForm], found: Bindings) -> Iterator[Bindings]:
    if wanted[:1] == (_OTHERS,) or not (wanted or given):
        yield found
    elif wanted and given:
        for first in _match(wanted[0], given[0], found):
            yield from _match_arguments(wanted[1:], given[1:], first)


def _match_sum(structure: NormalForm, term: NormalForm, found: Bindings) -> Iterator[Bindings]:
    if len(structure.parts) == 1 and not structure.constant:
        factor, bare = split_coefficient(term)
        yield from _match_multiple(structure.parts[0], (bare, factor), found)
        return
    given = term.parts if term.kind == "sum" else ((term, 1.0),)
    fixed, summands, others = _sort(structure.parts)
    for left, matched in _assign(fixed, given, found, _match_multiple):
        rest = term.constant - structure.constant
        unknown: list[_Part] = []
        for name, factor in summands:
            value = _fill(name, matched).number
            rest -= 0.0 if value is None else factor * value
            unknown += [(name, factor)] if value is None else []
        if left and not others:
            continue
        if unknown:
            yield from _bind(unknown[0][0], rest / unknown[0][1], matched)
        elif others or not rest:
            yield matched


def _match_product(structure: NormalForm, term: NormalForm, found: Bindings) -> Iterator[Bindings]:
    factor, bare = split_coefficient(term)
    given = factors(bare)
    fixed, coefficients, others = _sort(factors(structure))
    if len(fixed) == 1 and not others:
        # the whole product is this one factor, or the base of this one power
        ((only, exponent),) = fixed
        if exponent == 1 and not only.is_call("**"):
            given = ((bare, 1.0),)
        elif len({e for _, e in given}) == 1:
            given = ((multiply(*(base for base, _ in given)), given[0][1]),)
    for left, matched in _assign(fixed, given, found, _match_power):
        if left and not others:
            continue
        if coefficients:
            yield from _bind(coefficients[0][0], factor, matched)
        elif others or factor == 1:
            yield matched


def _match_multiple(wanted: _Part, given: _Part, found: Bindings) -> Iterator[Bindings]:
    (structure, factor), (term, given_factor) = wanted, given
    own, bare = split_coefficient(_fill(structure, found))
    fixed, coefficients, others = _sort(factors(bare))
    if coefficients:
        rest = multiply(*(power(part, exponent) for part, exponent in fixed), *([_OTHERS] if others else []))
        for bound in _bind(coefficients[0][0], given_factor / (factor * own), found):
            yield from _match(rest, term, bound)
    elif math.isclose(factor * own, given_factor, rel_tol=_CLOSE):
        yield from _match(bare, term, found)


def _match_power(wanted: _Part, given: _Part, found: Bindings) -> Iterator[Bindings]:
    (structure, exponent), (term, given_exponent) = wanted, given
    structure = _fill(structure, found)
    if structure.is_call("**"):
        base, name = structure.arguments
        for bound in _bind(name, given_exponent / exponent, found):
            yield from _match(base, term, bound)
    elif math.isclose(exponent, given_exponent, rel_tol=_CLOSE):
        yield from _match(structure, term, found)


def _assign(
    wanted: Sequence[_Part], given: Sequence[_Part], found: Bindings, step: _Step
) -> Iterator[tuple[Sequence[_Part], Bindings]]:
    """Each wanted part matched with one that is given, in every way; with those that are left."""
    if not wanted:
        yield given, found
        return
    for number_, part in enumerate(given):
        for matched in step(wanted[0], part, found):
            yield from _assign(wanted[1:], (*given[:number_], *given[number_ + 1 :]), matched, step)


def _sort(parts: Sequence[_Part]) -> tuple[list[_Part], list[_Part], bool]:
    """The parts that are terms, the smallest first; the names of numbers; and whether there may be others."""
    names = [part for part in parts if _is_number(part[0])]
    fixed = sorted((p for p in parts if p not in names and p[0] != _OTHERS), key=lambda p: p[0].size)
    return fixed, names, len(fixed) + len(names) < len(parts)


# -- What a term was computed from -------------------------------------------------------------------------------------


def contains(term: NormalForm, part: NormalForm) -> bool:
    """Whether a term is another, or was computed from it."""
    return term == part or any(contains(inside, part) for inside in term.arguments)


def sources(term: NormalForm, *parts: NormalForm) -> frozenset[NormalForm]:
    """What a term was computed from: some parts, which are not looked into, and leaves."""
    if term.kind == "leaf" or term in parts:
        return frozenset((term,))
    return frozenset(source for inside in term.arguments for source in sources(inside, *parts))
