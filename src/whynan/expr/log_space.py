"""Log space: the logarithm of an expression as a formula of the logarithms of its parts."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from whynan.expr.match import Match, Missing, is_divisor
from whynan.expr.term import Term, coefficient, number, product_of, sum_of
from whynan.floats import GREATEST_EXPONENTS
from whynan.ops.table import TORCH
from whynan.source.calls import function_of, operator_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.expr.from_python import Reader
    from whynan.source.text import Place

_FORMULAS: Final = TORCH.column("logarithm")
_PLACE: Final = re.compile(r"([{<])(\w+)[}>]")
_MOST_LEVELS: Final = 24
_PICKS: Final = TORCH.having("view", "cast", "picks")
_ELEMENTWISE: Final = TORCH.having("elementwise")


@dataclass
class LogSpace:
    """The logarithms of the terms of one function, with what stands for the variables of the formulas."""

    reader: Reader
    match: Match = field(default_factory=Match)
    gains: bool = False
    """Whether an exponential and its logarithm have met."""
    divides: bool = False
    """Whether the terms of a sum are divided where the sum is divided by."""
    floors: bool = False
    """Whether the logarithm of what has no exponential, as a mask, ends at the least number: no row of it is -Inf."""
    weighs: str = ""
    """Where what has no exponential, as the weights of a mixture, stays a factor in a sum, for it may be 0: the
    greatest number whose exponential is finite."""
    names: tuple[tuple[str, str], ...] = ()
    """What parts of the formula are called: pairs of a name and an expression."""
    guards: tuple[str, ...] = ()
    """The selections that the term is a branch of: what is written around what may be out of a logarithm's domain."""
    bare: int = 0
    """How many logarithms are written of what may be out of their domain."""

    def log(self, term: Term, depth: int = _MOST_LEVELS) -> str | None:
        """The formula of a term's logarithm, where an exponential in it is left out; None where none is."""
        known = self.match, self.gains, self.bare
        found = self._own(term, depth) if depth else None
        if found is None and depth:
            self.match, self.gains, self.bare = known
            found = self._followed(term, depth)
        if found is None:
            self.match, self.gains, self.bare = known
        return found

    def _followed(self, term: Term, depth: int) -> str | None:
        """What a name stands for, or what elements are moved of."""
        if (made := self._meaning(term)) is not None:
            return self.log(made, depth - 1)
        moved = moved_operand(self.reader.place, term.node)
        if moved is None:
            return None
        found = self._in_branch(term, "", self.reader.read(moved), partial(self.log, depth=depth - 1))
        if found is None:
            return None
        self._take(term)
        return f"around({found}, {self._variable(Term('leaf', node=term.node))})"

    def _meaning(self, term: Term) -> Term | None:
        """What a name stands for, whose definition is taken in; None where that is not known."""
        made, definition = self.reader.expand(term), self.reader.definition(term)
        if made is not None and definition is not None:
            self.match = replace(self.match, definitions=(*self.match.definitions, definition))
        return made

    def _own(self, term: Term, depth: int) -> str | None:
        if term.name in ("mul", "add"):
            return self._product(term, depth) if term.name == "mul" else self._sum(term, depth)
        if self.weighs and term.name == "sum" and (found := self._weighted_sum(term, depth)) is not None:
            return found
        tensors = term.child("tensors")
        if tensors is not None:
            return self._list(term, tensors, depth)
        formula = _FORMULAS.get(term.name)
        if formula is None:
            return None
        given = dict(term.children)
        if term.origin is not None:
            given = {"input": term.origin, "exponent": number(-1)}
        taken = dict.fromkeys(name for kind, name in _PLACE.findall(formula) if kind == "<")
        write = partial(self.log, depth=depth - 1)
        logs = {name: self._in_branch(term, name, given[name], write) for name in taken if name in given}
        if taken and not any(logs.values()):
            return None
        logs = {name: log or self._in_branch(term, name, given[name], self._leaf) for name, log in logs.items()}
        if None in logs.values():
            return None
        self._take(term)
        self.gains = self.gains or not taken

        def written(place: re.Match[str]) -> str:
            name = place[2]
            if place[1] == "<" and name in logs:
                return f"({logs[name]})"
            value = given.get(name, Missing(term.name))
            if isinstance(value, Term) and value.name == "number":
                return repr(value.value).removesuffix(".0")
            return self._variable(value)

        return _PLACE.sub(written, formula).replace("-1 * ", "-", 1)

    def _weighted_sum(self, term: Term, depth: int) -> str | None:
        """A sum of weights times exponentials, each of these by the greatest of those whose weight is not 0."""
        known, along, made = (self.match, self.gains, self.bare), term.child("dim"), term.operands[0]
        while made.name == "leaf" and (following := self._meaning(made)) is not None:
            made = following
        factors = [(factor, self.log(factor, depth - 1)) for factor in made.operands] if made.name == "mul" else []
        rest = [factor for factor, log in factors if log is None]
        weights = [factor for factor in rest if not is_divisor(factor) and factor.name != "number"]
        exponent = product_of([factor for factor, _ in factors if factor not in weights])
        log = self.log(exponent, depth - 1) if weights and len(rest) < len(factors) else None
        if log is None or along is None or self.names or coefficient(made)[0] <= 0:
            self.match, self.gains, self.bare = known
            return None
        self._take(term)
        self._take(made)
        weight, dim = self._variable(product_of(weights)), self._variable(along)
        keep = term.child("keepdim")
        kept = f", keepdim={self._variable(keep)}" if keep is not None else ""
        least = f"finfo({weight}).min"
        counted = f"amax(where({weight} == 0, {least}, {log}), dim={dim}, keepdim=True)"
        greatest = f"detach(clamp({counted}, min={least}))"
        self.names = ("exponent", log), ("greatest", greatest)
        term_text = f"{weight} * exp(clamp(({log}) - {greatest}, max={self.weighs}))"
        return f"log(sum({term_text}, dim={dim}{kept})) + amax({greatest}, dim={dim}{kept})"

    def _list(self, term: Term, tensors: Term, depth: int) -> str | None:
        """Tensors that are joined, of which the source has each."""
        if not isinstance(tensors.node, (ast.List, ast.Tuple)):
            return None
        parts = [self.reader.read(part) for part in tensors.node.elts]
        write = partial(self.log, depth=depth - 1)
        logs = [self._in_branch(term, "", part, write) for part in parts]
        if not any(logs):
            return None
        logs = [log or self._in_branch(term, "", part, self._leaf) for log, part in zip(logs, parts, strict=True)]
        if None in logs:
            return None
        self._take(term)
        along = term.child("dim")
        dim = "" if along is None else f", {self._variable(along)}"
        return f"{term.name}([{', '.join(map(str, logs))}]{dim})"

    def _in_branch(self, term: Term, name: str, part: Term, write: Callable[[Term], str | None]) -> str | None:
        """What is written of an operand; None where it would have to be guarded and cannot be."""
        guards, bare = self.guards, self.bare
        chosen = term.child("condition") if term.name == "where" else None
        if chosen is not None:
            condition = self._variable(chosen)
            self.guards = (*guards, f"where({condition}, {'{0}, {1}' if name == 'input' else '{1}, {0}'})")
        elif term.name not in _ELEMENTWISE:
            self.guards = ()
        found, self.guards = write(part), guards
        return None if guards and term.name not in _ELEMENTWISE and self.bare > bare else found

    def _guarded(self, operand: str, inside: str = "1") -> str:
        """The operand of a logarithm, a number ``inside`` its domain where a selection leaves it out."""
        self.bare += 1
        for guard in self.guards:
            operand = guard.format(operand, inside)
        return operand

    def _quotient(self, term: Term, depth: int) -> str | None:
        """What is divided by a sum of a dimension: each of its terms is, so that those that are alike leave nothing."""
        below = [factor for factor in term.operands if is_divisor(factor)]
        by = below[0].origin or below[0].operands[0] if len(below) == 1 else None
        while by is not None and by.name == "leaf":
            by = self._meaning(by)
        along = None if by is None or by.name != "sum" else by.child("dim")
        # a dimension that is kept may be as long in what is divided
        if by is None or along is None or (by.child("keepdim") or along).text == "True":
            return None
        each = self.log(by.operands[0], depth - 1)
        above = self.log(product_of([factor for factor in term.operands if factor is not below[0]]), depth - 1)
        if each is None or above is None or along.name != "number":
            return None
        self._take(by)
        dim = self._variable(along)
        return f"-logsumexp({each} - unsqueeze({above}, {dim}), {dim})"

    def _share(self, term: Term, depth: int) -> str | None:
        """What is divided by a sum that it is a term of: where it is nearly all of that, its logarithm is nearly 0."""
        below = [factor for factor in term.operands if is_divisor(factor)]
        whole = below[0].origin or below[0].operands[0] if len(below) == 1 else None
        while whole is not None and whole.name == "leaf":
            whole = self._meaning(whole)
        if whole is None or whole.name != "add":
            return None
        part = product_of([factor for factor in term.operands if factor is not below[0]])
        rest = [other for other in whole.operands if not self.reader.is_equivalent(other, part)]
        above = self.log(part, depth - 1)
        if above is None or len(rest) != len(whole.operands) - 1 or any(coefficient(one)[0] < 0 for one in rest):
            return None
        self._take(whole)
        others = sum_of(rest)
        return f"logsigmoid({above} - ({self.log(others, depth - 1) or self._leaf(others)}))"

    def _product(self, term: Term, depth: int) -> str | None:
        known = self.match, self.gains, self.bare
        for form in (self._share, *([self._quotient] if self.divides else [])):
            if (found := form(term, depth)) is not None:
                self._take(term)
                return found
            self.match, self.gains, self.bare = known
        self._take(term)
        factors = [(factor, self.log(factor, depth - 1)) for factor in term.operands]
        logs = [log for _, log in factors if log is not None]
        rest = [factor for factor, log in factors if log is None]
        if not logs or coefficient(term)[0] <= 0:
            return None
        below = [factor for factor in rest if is_divisor(factor)]
        above = [factor for factor in rest if not is_divisor(factor)]
        logs.sort(key=lambda log: log.startswith("-("))
        formula = "".join(f" - {log[1:]}" if i and log[:2] == "-(" else f" + ({log})" for i, log in enumerate(logs))
        formula = formula.removeprefix(" + ")
        if above:
            formula += f" + {self._leaf(product_of(above))}"
        for factor in below:
            formula += f" - {self._leaf(factor.origin or factor.operands[0])}"
        return formula

    def _sum(self, term: Term, depth: int) -> str | None:
        self._take(term)
        constant = sum(part.value for part in term.operands if part.name == "number")
        parts = [part for part in term.operands if part.name != "number"]
        if len(parts) == 1 and abs(constant) == 1:
            sign = coefficient(parts[0])[0]
            if sign < 0 and constant == 1:
                return self._complement(product_of([Term("number", value=-1.0), parts[0]]), depth)
            if sign > 0 and constant == -1:
                log = self.log(parts[0], depth - 1)
                if log is None:
                    return None
                log = self._guarded(log)
                return f"{log} + log(-expm1(-({log})))"
        if constant < 0 or any(coefficient(part)[0] < 0 for part in parts):
            return None
        logs = [self.log(part, depth - 1) for part in parts]
        if all(log is None for log in logs):
            return None
        each = [log or self._leaf(part) for log, part in zip(logs, parts, strict=True)]
        formula = each[0]
        for log in each[1:]:
            formula = f"logaddexp({formula}, {log})"
        if constant == 1:
            return f"softplus({formula})"
        log = f"{math.log(constant):+.17g}" if constant else ""
        return f"softplus(({formula}) {'-' if log[0] == '+' else '+'} {log[1:]}) {log[0]} {log[1:]}" if log else formula

    def _complement(self, term: Term, depth: int) -> str | None:
        """The logarithm of 1 less a term."""
        known, made = self.match, term
        while made.name == "leaf" and (following := self._meaning(made)) is not None:
            made = following
        if made.name == "sigmoid":
            self._take(made)
            self.gains = True
            return f"logsigmoid(-{self._variable(made.operands[0])})"
        self.match = known
        log = self.log(term, depth - 1)
        return None if log is None else f"log(-expm1({self._guarded(log, '-1')}))"

    def _leaf(self, term: Term) -> str:
        """The logarithm of what has no exponential in it."""
        if term.name == "number":
            return repr(math.log(term.value)) if term.value > 0 else "-inf"
        name = self._variable(term)
        if not self.guards and _is_scalar(self.reader, term.node):
            return f"scalar_log({name})"
        log = f"log({self._guarded(name)})"
        return f"clamp({log}, min=finfo({name}).min)" if self.floors else log

    def _variable(self, value: Term | Missing) -> str:
        known = [(n, v) for n, v in self.match.variables.items() if isinstance(v, Term) and v.key is not None]
        same = (n for n, v in known if isinstance(value, Term) and v.key == value.key)
        name = next(same, f"part_{len(self.match.variables)}")
        self.match = replace(self.match, variables={**self.match.variables, name: value})
        return name

    def _take(self, term: Term) -> None:
        self.match = replace(self.match, nodes=self.match.nodes | term.own | {term.node})


def moved_operand(place: Place, node: object) -> ast.expr | None:
    """The operand of an expression that only moves its elements."""
    match node:
        case ast.Subscript(value=value) | ast.Attribute(value=value, attr="T" | "mT"):
            return value
        case ast.Call(func=callee) if operator_of(place, node)[0] in _PICKS:
            if function_of(place, callee) is None and isinstance(callee, ast.Attribute):
                return callee.value
            return node.args[0] if node.args else None
        case _:
            return None


def logarithms(reader: Reader, term: Term, dtype: str) -> list[tuple[str, Match, tuple[tuple[str, str], ...]]]:
    """The formulas in log space of a term that is a logarithm, each with what it takes in and the names of its parts.

    There is none if nothing is gained.

    The second divides the terms of a sum, where that is another one: its operands have to be of as many dimensions. The
    third has a least number in place of the logarithm of a 0, of which a row may have nothing else; the fourth leaves
    weights as they are.
    """
    scale, parts = coefficient(term)
    if len(parts) != 1 or parts[0].name != "log":
        return []
    made: dict[str, tuple[Match, tuple[tuple[str, str], ...]]] = {}
    most = GREATEST_EXPONENTS.get(dtype, "")
    for form in ("", "divides", "floors", "weighs"):
        match = Match(nodes=term.own | parts[0].own, factors=() if scale == 1 else (number(scale),))
        weighs = most if form == "weighs" else ""
        found = LogSpace(reader, match, divides=form == "divides", floors=form == "floors", weighs=weighs)
        formula = found.log(parts[0].operands[0])
        if formula is not None and found.gains:
            made.setdefault(formula, (found.match, found.names))
    return [(formula, *rest) for formula, rest in made.items()]


# -- Numbers of Python's, as far as a function shows that an expression is one --------------------------------------


_METHODS: Final = ("size", "numel", "dim", "item")
_BUILTINS: Final = ("len", "int", "float")


def _is_scalar(reader: Reader, node: ast.AST | None) -> bool:
    """Whether an expression is a number of Python's for certain: ``x.size(1)``, ``len(x)``, a part of ``x.shape``."""
    match node:
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_scalar(reader, operand)
        case ast.BinOp(left=left, right=right):
            return _is_scalar(reader, left) and _is_scalar(reader, right)
        case ast.Subscript(value=value, slice=index):
            return _is_shape(value) and not isinstance(index, ast.Slice)
        case ast.Call(func=ast.Name(id=name)):
            return name in _BUILTINS and name not in reader.place.assigned_names
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _METHODS and not _is_shape(node)
        case ast.Name():
            return _is_scalar_name(reader, node)
        case _:
            return False


def _is_scalar_name(reader: Reader, name: ast.Name) -> bool:
    made = reader.reaching.single_definition(name)
    if made is None or made.written or not isinstance(made.node, ast.Name):
        return False
    if made.value is not None:
        return _is_scalar(reader, made.value)
    statement = reader.place.statement(made.node)
    if not isinstance(statement, ast.Assign) or not _is_shape(statement.value):
        return False
    return any(isinstance(target, ast.Tuple) and made.node in target.elts for target in statement.targets)


def _is_shape(node: ast.AST) -> bool:
    """Whether an expression is all sizes of a tensor."""
    match node:
        case ast.Attribute(attr="shape"):
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[], keywords=[]):
            return True
        case _:
            return False
