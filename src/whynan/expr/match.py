"""Matching: where a pattern is a term of a program or a graph, its names followed to their definitions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from whynan.expr.term import NONE, Nodes, Term, coefficient, number, power, product_of, sum_of
from whynan.ops import signatures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from whynan.source.dataflow import Definition

_MOST_WAYS: Final = 4000
_SOFTMAX: Final = ("softmax", "log_softmax")


@dataclass(frozen=True)
class Missing:
    """An argument that the source does not give, of this operator."""

    operator: str


@dataclass(frozen=True)
class Match:
    """What a pattern's variables stand for, and what of the source it took in.

    ``places`` tells which term a node of the pattern is. What is not the pattern's own is kept around it: casts and
    views as ``wrappers``, as the reader has them, and ``factors`` and ``terms`` that it is multiplied by and added to.
    ``definitions`` are those that were followed.
    """

    variables: dict[str, Term | Missing] = field(default_factory=dict[str, "Term | Missing"])
    places: dict[Any, Term] = field(default_factory=dict[Any, Term])
    nodes: Nodes = NONE
    wrappers: tuple[Any, ...] = ()
    definitions: tuple[Definition, ...] = ()
    dtype: Term | None = None
    factors: tuple[Term, ...] = ()
    terms: tuple[Term, ...] = ()


def is_divisor(term: Term) -> bool:
    """Whether a factor is divided by."""
    exponent = term.operands[1] if term.name == "pow" and len(term.operands) == 2 else None
    return exponent is not None and exponent.name == "number" and exponent.value == -1


def _divisor(factor: float) -> float:
    """The number that a factor is the reciprocal of, in as few digits as have it."""
    short = float(f"{1 / factor:.15g}")
    return short if 1 / short == factor else 1 / factor


class Reader(Protocol):
    """What a matcher asks of the terms of a function or a graph."""

    tolerance: float
    """Relative: as far as the numbers of a pattern may be from those that are there."""

    def expand(self, term: Term) -> Term | None:
        """What a name stands for."""
        ...

    def definition(self, term: Term) -> Definition | None:
        """The assignment that made a name's value."""
        ...

    def is_equivalent(self, first: Term, second: Term) -> bool:
        """Whether two terms have one value."""
        ...

    def unwrap(self, term: Term) -> tuple[Term, object] | None:
        """The operand of a cast or a view, and what stands around it."""
        ...

    def decompositions(self, pattern: Term) -> Iterable[Term]:
        """Other patterns of the same value, where the terms may have lost an operator's name."""
        ...

    def is_division(self, node: object) -> bool:
        """Whether a node is a division."""
        ...


class Matcher:
    """Matches patterns with the terms of one function, or of a graph."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._ways = 0

    def matches(self, pattern: Term, term: Term) -> Iterator[Match]:
        """Every way in which a pattern is a term, the plainest first."""
        self._ways = 0
        empty = Match()
        if pattern.name == "mul":
            yield from self._product(pattern, term, empty, whole=False)
        elif pattern.name == "add":
            yield from self._sum(pattern, term, empty, whole=False)
        else:
            yield from self._match(pattern, term, empty, elementwise=True)
            if term.name == "mul":
                yield from self._product(pattern, term, empty, whole=False)

    def _match(self, pattern: Term, term: Term, found: Match, *, elementwise: bool) -> Iterator[Match]:
        self._ways += 1
        if self._ways > _MOST_WAYS:
            return
        if pattern.node is not None:
            found = replace(found, places={**found.places, pattern.node: term})
        if pattern.name == "variable":
            yield from self._bind(pattern.text, term, found)
            return
        yield from self._match_term(pattern, term, found, elementwise=elementwise)
        made = self._reader.expand(term)
        definition = self._reader.definition(term)
        if made is not None:
            followed = found if definition is None else replace(found, definitions=(*found.definitions, definition))
            yield from self._match(pattern, made, followed, elementwise=elementwise)
        elif elementwise and pattern.name != "number" and pattern.name != term.name:
            yield from self._match_wrapped(pattern, term, found)
        if is_divisor(term):
            yield from self._match_divisor(pattern, term, found, elementwise=elementwise)
        for other in self._reader.decompositions(pattern):
            yield from self._match(other, term, found, elementwise=elementwise)

    def _match_divisor(self, pattern: Term, term: Term, found: Match, *, elementwise: bool) -> Iterator[Match]:
        """Opens a divisor's name that stands for a power: the two are one."""
        divisor, exponent = term.operands
        made, definition = self._reader.expand(divisor), self._reader.definition(divisor)
        if made is not None and made.name == "pow":
            opened = power(made, exponent, own=term.own)
            followed = found if definition is None else replace(found, definitions=(*found.definitions, definition))
            yield from self._match(pattern, opened, followed, elementwise=elementwise)

    def _match_wrapped(self, pattern: Term, term: Term, found: Match) -> Iterator[Match]:
        """Looks through a cast or a view, which then goes around the replacement."""
        held = self._reader.unwrap(term)
        if held is not None:
            inner, wrapper = held
            wrapped = replace(found, wrappers=(wrapper, *found.wrappers), nodes=found.nodes | term.own)
            yield from self._match(pattern, inner, wrapped, elementwise=True)

    def _is_close(self, first: float, second: float) -> bool:
        return math.isclose(first, second, rel_tol=self._reader.tolerance)

    def _match_term(self, pattern: Term, term: Term, found: Match, *, elementwise: bool) -> Iterator[Match]:
        match pattern.name:
            case "number":
                if term.name == "number" and self._is_close(term.value, pattern.value):
                    yield found
            case "constant":
                if term.key == pattern.key:
                    yield found
            case "mul":
                yield from self._product(pattern, term, found, whole=True)
            case "add":
                yield from self._sum(pattern, term, found, whole=True)
            case "pow" if term.name == "pow" and len(pattern.children) == len(term.children):
                yield from self._power(pattern, term, found, elementwise=elementwise)
            case name if name == term.name:
                yield from self._operator(pattern, term, found, elementwise=elementwise)
            case _:
                pass

    def _power(self, pattern: Term, term: Term, found: Match, *, elementwise: bool) -> Iterator[Match]:
        used = replace(found, nodes=found.nodes | term.own)
        exponent = pattern.operands[1]
        if exponent.name == "variable" and term.operands[1].node is None:
            return  # a division, a root: no power that the source writes
        if term.origin is not None and exponent.name == "number" and exponent.value == -1:
            yield from self._match(pattern.operands[0], term.origin, used, elementwise=elementwise)
        for based in self._match(pattern.operands[0], term.operands[0], used, elementwise=elementwise):
            yield from self._match(exponent, term.operands[1], based, elementwise=False)

    def _operator(self, pattern: Term, term: Term, found: Match, *, elementwise: bool) -> Iterator[Match]:
        used = replace(found, nodes=found.nodes | term.own)
        wanted = dict(pattern.children)
        given = dict(term.children)
        extra = given.keys() - wanted.keys()
        if extra == {"dtype"} and term.name in _SOFTMAX:
            used = replace(used, dtype=given["dtype"])
        elif extra:
            return
        pairs: list[tuple[Term, Term]] = []
        for i, (parameter, inner) in enumerate(pattern.children):
            if parameter in given:
                pairs.append((inner, given[parameter]))
            elif i and inner.name == "variable" and not isinstance(used.variables.get(inner.text), Term):
                used = replace(used, variables={**used.variables, inner.text: Missing(term.name)})
            else:
                return
        inside = elementwise and term.name in signatures.ELEMENTWISE
        yield from self._match_pairs(pairs, used, elementwise=inside)

    def _match_pairs(self, pairs: Sequence[tuple[Term, Term]], found: Match, *, elementwise: bool) -> Iterator[Match]:
        if not pairs:
            yield found
            return
        for first in self._match(*pairs[0], found, elementwise=elementwise):
            yield from self._match_pairs(pairs[1:], first, elementwise=elementwise)

    def _bind(self, name: str, term: Term, found: Match) -> Iterator[Match]:
        if term.hidden:
            return
        known = found.variables.get(name)
        if known is None:
            yield replace(found, variables={**found.variables, name: term})
        elif isinstance(known, Term) and self._reader.is_equivalent(known, term):
            yield found

    # -- products and sums

    def _expand_names(self, items: list[Term], name: str, found: Match) -> tuple[list[Term], Match] | None:
        """Names that stand for a product (a sum) among the factors (the terms), opened."""
        opened: list[Term] = []
        changed = False
        for item in items:
            made, definition = self._reader.expand(item), self._reader.definition(item)
            if made is not None and definition is not None and made.name == name:
                found = replace(found, definitions=(*found.definitions, definition), nodes=found.nodes | made.own)
                opened += made.operands
                changed = True
            elif (twin := next((o for o in opened if self._reader.is_equivalent(o, item)), None)) is not None:
                opened.append(twin)
                changed = changed or twin.key != item.key
            else:
                opened.append(item)
        return (opened, found) if changed else None

    def _product(self, pattern: Term, term: Term, found: Match, *, whole: bool) -> Iterator[Match]:
        wanted_number, wanted = coefficient(pattern)
        given_number, given = coefficient(term)
        if term.name == "mul":
            found = replace(found, nodes=found.nodes | term.own)
        yield from self._factors(wanted_number, wanted, given_number, given, found, whole=whole)
        opened = self._expand_names(given, "mul", found)
        if opened is not None:
            items, followed = opened
            again_number, again = coefficient(product_of([number(given_number), *items]))
            yield from self._factors(wanted_number, wanted, again_number, again, followed, whole=whole)

    def _factors(
        self,
        wanted_number: float,
        wanted: list[Term],
        given_number: float,
        given: list[Term],
        found: Match,
        *,
        whole: bool,
    ) -> Iterator[Match]:
        ratio = given_number / wanted_number if wanted_number else 1.0
        if abs(wanted_number) != 1 and not whole and not self._is_close(abs(ratio), 1):
            return
        fixed = [w for w in wanted if w.name != "variable"]
        free = [w for w in wanted if w.name == "variable"]
        for left, matched in self._assignments(fixed, given, found):
            rest, unbound = self._remove_bound(left, free, matched, "mul")
            if rest is None:
                continue
            if unbound:
                if rest or not self._is_close(ratio, 1) or any(map(is_divisor, fixed)):
                    yield from self._distribute(unbound, rest, ratio, matched, "mul")
            elif whole and not rest and self._is_close(ratio, 1):
                yield matched
            elif not whole:
                more = [*rest] if self._is_close(ratio, 1) else [number(ratio), *rest]
                yield replace(matched, factors=(*matched.factors, *more))
        for divisor in fixed if any(map(self._reader.is_division, found.nodes)) else ():
            variable = divisor.operands[0] if is_divisor(divisor) else divisor
            if variable.name == "variable" and given_number not in (0, 1, -1) and wanted_number == 1:
                # the divisor is a number, and has become the product's own
                others = [w for w in wanted if w is not divisor]
                for matched in self._bind(variable.text, number(_divisor(given_number)), found):
                    yield from self._factors(1.0, others, 1.0, given, matched, whole=whole)

    def _remove_bound(
        self, given: list[Term], free: list[Term], found: Match, name: str
    ) -> tuple[list[Term] | None, list[Term]]:
        """What is left of the parts without those that variables are which are known already; these missing: None."""
        rest, unbound = list(given), list[Term]()
        for variable in free:
            known = found.variables.get(variable.text)
            if not isinstance(known, Term):
                unbound.append(variable)
                continue
            for part in known.operands if known.name == name else (known,):
                at = next((i for i, item in enumerate(rest) if self._reader.is_equivalent(part, item)), None)
                if at is None:
                    return None, unbound
                del rest[at]
        return rest, unbound

    def _assignments(self, wanted: list[Term], given: list[Term], found: Match) -> Iterator[tuple[list[Term], Match]]:
        """Each wanted one matched with one that is given, in every way; with those that are left."""
        if not wanted:
            yield given, found
            return
        is_negative = coefficient(wanted[0])[0] < 0
        alike = [i for i, item in enumerate(given) if (coefficient(item)[0] < 0) == is_negative]
        for i in [*alike, *(i for i in range(len(given)) if i not in alike)]:
            for matched in self._match(wanted[0], given[i], found, elementwise=True):
                yield from self._assignments(wanted[1:], [*given[:i], *given[i + 1 :]], matched)

    def _distribute(
        self, free: list[Term], rest: list[Term], constant: float, found: Match, name: str
    ) -> Iterator[Match]:
        """The variables among the factors (the terms) take what is left, each one part and the last all the rest."""
        join, neutral = (product_of, 1.0) if name == "mul" else (sum_of, 0.0)
        if len(free) == 1:
            parts = [*rest] if constant == neutral else [number(constant), *rest]
            if not parts and name == "add":
                return
            whole = parts[0] if len(parts) == 1 else join(parts or [number(neutral)])
            known = replace(found, places={**found.places, **({free[0].node: whole} if free[0].node else {})})
            yield from self._bind(free[0].text, whole, known)
            return
        for i, item in enumerate(rest):
            for bound in self._match(free[0], item, found, elementwise=True):
                yield from self._distribute(free[1:], [*rest[:i], *rest[i + 1 :]], constant, bound, name)

    def _sum(self, pattern: Term, term: Term, found: Match, *, whole: bool) -> Iterator[Match]:
        if term.name == "add":
            found = replace(found, nodes=found.nodes | term.own)
        given = list(term.operands) if term.name == "add" else [term]
        yield from self._terms(pattern, given, found, whole=whole)
        opened = self._expand_names(given, "add", found)
        if opened is not None:
            given, found = opened
            yield from self._terms(pattern, given, found, whole=whole)
        if not whole:
            other = [product_of([number(-1), item]) for item in given]
            for matched in self._terms(pattern, other, found, whole=True):
                yield replace(matched, factors=(*matched.factors, number(-1)))

    def _terms(self, pattern: Term, given: list[Term], found: Match, *, whole: bool) -> Iterator[Match]:
        fixed = [w for w in pattern.operands if w.name != "variable"]
        free = [w for w in pattern.operands if w.name == "variable"]
        for left, matched in self._assignments(fixed, given, found):
            rest, unbound = self._remove_bound(left, free, matched, "add")
            if rest is None:
                continue
            if unbound:
                if rest:
                    yield from self._distribute(unbound, rest, 0.0, matched, "add")
            elif not rest:
                yield matched
            elif not whole:
                yield replace(matched, terms=(*matched.terms, *rest))
