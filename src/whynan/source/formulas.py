"""Formulas: whether two expressions of one function are terms of one statement, or meet in a later expression."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whynan.ops.table import TORCH
from whynan.source.calls import operator_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.records import Site
    from whynan.source.text import Place

_LOSSES: Final = ("loss", "entropy", "div")
_FILLING: Final = frozenset("append add insert extend".split())
_LINEAR: Final = (ast.Add, ast.Sub)
_WEIGHTS: Final = (ast.Constant, ast.Name, ast.Attribute)


@dataclass(frozen=True, slots=True)
class Term:
    """An expression at which something was born, and the statement that it is part of."""

    node: ast.AST
    statement: ast.stmt


Reads = dict[ast.AST, bool]
"""Where the value of a term is read, and whether it was reduced to a scalar before."""


class Formulas:
    """The terms of one source file, as it was in the run."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._flows: dict[ast.AST, Reads] = {}

    def term(self, site: Site) -> Term | None:
        """The term at a site; None where no expression stands there."""
        node = self._place.node_of(site)
        return None if node is None else Term(node, self._place.statement(node))

    def meet(self, one: Term, other: Term) -> bool:
        """Whether one later expression of their function is computed from both terms.

        The sum of two numbers that were each reduced to a scalar before joins two losses: they meet only if both are
        computed from one variable.
        """
        place = self._place
        if one.statement is other.statement or place.function(one.node) is not place.function(other.node):
            return False
        mine, yours = self._terms(one), self._terms(other)
        if any(self._within(n, other.node) for n in mine) or any(self._within(n, one.node) for n in yours):
            # one is computed from the other: no two terms
            return False
        filled = _is_filling(one.statement) and _is_filling(other.statement)
        for first, reduced in mine.items():
            for second, also_reduced in yours.items():
                if place.statement(first) is not place.statement(second) or (first is second and not filled):
                    continue
                joint = self._joint(first, second)
                if joint is None:
                    continue
                scalars = (reduced or self._reduces(first, joint)) and (also_reduced or self._reduces(second, joint))
                if not (scalars and self._is_sum(joint)) or self._origins(one.node) & self._origins(other.node):
                    return True
        return False

    def _terms(self, term: Term) -> Reads:
        """Where the value of a term is read, its own place included."""
        own: Reads = {} if self._leaves(term.node) else {term.node: _is_reduction(term.node)}
        return {**self._flow(term), **own}

    def _flow(self, term: Term) -> Reads:
        """Forward slice: the later reads of the value of a term, within its function."""
        known = self._flows.get(term.node)
        if known is not None:
            return known
        flow = self._flows[term.node] = {}
        reduced = _is_reduction(term.node) or self._reduces(term.node, term.statement)
        names = {} if self._leaves(term.node) else dict.fromkeys(_targets(term.statement), reduced)
        function = self._place.function(term.node)
        later = (s for s in _statements(function) if s.lineno > term.statement.lineno)
        for statement in sorted(later, key=lambda s: s.lineno):
            read = (n for n in _own_names(statement) if n.id in names and _is_read(n, statement))
            found = {n: names[n.id] for n in read if not self._leaves(n)}
            flow |= found
            after = [was or self._reduces(n, statement) for n, was in found.items()]
            for target in _targets(statement):
                if found:
                    names[target] = all(after)
                elif isinstance(statement, ast.Assign):
                    names.pop(target, None)
        return flow

    def _leaves(self, node: ast.AST) -> bool:
        """Whether a value is an argument of a call that is no operator: what that computes is not seen here."""
        child = node
        for parent in self._place.above(node):
            if isinstance(parent, ast.stmt):
                return False
            if isinstance(parent, ast.Call) and child is not parent.func and not self._is_operator(parent):
                return not _is_filling(self._place.statement(parent))
            child = parent
        return False

    def _is_operator(self, call: ast.Call) -> bool:
        is_sum = isinstance(call.func, ast.Name) and call.func.id == "sum"
        return is_sum or operator_of(self._place, call)[0] is not None

    def _within(self, node: ast.AST, outer: ast.AST) -> bool:
        return node is not outer and outer in self._place.above(node)

    def _joint(self, one: ast.AST, other: ast.AST) -> ast.AST | None:
        """The operation in which two parts of a statement are joined; None where nothing is computed from both."""
        above = [one, *self._place.above(one)]
        joint = next((n for n in (other, *self._place.above(other)) if n in above), None)
        if isinstance(joint, (ast.List, ast.Tuple, ast.Name)):
            joint = self._place.parents.get(joint)
        if isinstance(joint, (ast.BinOp, ast.AugAssign)):
            return joint
        if isinstance(joint, ast.Call):
            return joint if self._is_operator(joint) else None
        return None

    def _reduces(self, node: ast.AST, outer: ast.AST) -> bool:
        """Whether a reduction to a scalar stands around a node, within another."""
        for parent in self._place.above(node):
            if parent is outer:
                return False
            if _is_reduction(parent):
                return True
        return False

    def _is_sum(self, joint: ast.AST) -> bool:
        """Whether a whole statement is a weighted sum, of which a node is part, and nothing divides by it later."""
        for node in (joint, *self._place.above(joint)):
            match node:
                case ast.stmt():
                    is_linear = not isinstance(node, ast.AugAssign) or isinstance(node.op, _LINEAR)
                    return is_linear and not self._is_divisor(Term(joint, node))
                case ast.BinOp(op=ast.Add() | ast.Sub()) | ast.UnaryOp() | ast.List() | ast.Tuple() | ast.Call():
                    pass
                case ast.BinOp(op=ast.Mult() | ast.Div(), left=left, right=right):
                    weights = (right,) if isinstance(node.op, ast.Div) else (left, right)
                    if not any(isinstance(weight, _WEIGHTS) for weight in weights):
                        return False
                case _:
                    return False
        return False

    def _is_divisor(self, term: Term) -> bool:
        """Whether a later statement divides by the value of a term."""
        for read in self._flow(term):
            above = [read, *self._place.above(read)]
            if any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) and n.right in above for n in above):
                return True
        return False

    def _origins(self, node: ast.AST) -> frozenset[str]:
        """Backward slice: the variables that an expression is computed from, by operators alone, in its function."""
        function = self._place.function(node)
        found: set[str] = set()
        waiting: list[tuple[ast.AST, int]] = [(node, self._place.statement(node).lineno)]
        while waiting:
            part, line = waiting.pop()
            for name in self._operands(part):
                if name.id in found:
                    continue
                found.add(name.id)
                waiting += [
                    (s.value, s.lineno)
                    for s in _statements(function)
                    if isinstance(s, ast.Assign) and s.lineno < line and name.id in _targets(s)
                ][-1:]
        return frozenset(found)

    def _operands(self, node: ast.AST) -> Iterator[ast.Name]:
        """The variables of an expression, without the arguments of calls that are no operators."""
        if isinstance(node, ast.Call) and operator_of(self._place, node)[0] is None:
            return
        if isinstance(node, ast.Name) and node.id not in self._place.imports:
            yield node
        for child in ast.iter_child_nodes(node):
            yield from self._operands(child)


def _statements(function: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function, those of functions and classes in it left out."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _statements(child)


def _own_names(statement: ast.stmt) -> Iterator[ast.Name]:
    """The names in a statement, without those of the statements in its body."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def _is_read(name: ast.Name, statement: ast.stmt) -> bool:
    added = isinstance(statement, ast.AugAssign) and statement.target is name
    return added or isinstance(name.ctx, ast.Load)


def _targets(statement: ast.stmt) -> set[str]:
    """The variables that a statement gives a value, or puts one into."""
    match statement:
        case ast.Assign(targets=targets):
            parts = targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            parts = [target]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if _is_filling(statement):
            return {name}
        case _:
            return set()
    return {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}


def _is_filling(statement: ast.stmt) -> bool:
    """Whether a statement puts a value into a list or a set."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attribute))):
            return attribute in _FILLING
        case _:
            return False


def _is_reduction(node: ast.AST) -> bool:
    """Whether a node is a call that gives one number: ``x.mean()``, ``torch.sum(x)``, ``F.mse_loss(x, y)``."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch" | "F"), attr=name)):
            own = 1
        case ast.Call(func=ast.Attribute(attr=name)):
            own = 0
        case ast.Call(func=ast.Name(id=name)):
            own = 1
        case _:
            return False
    whole = name in TORCH.having("reduction") and len(node.args) + len(node.keywords) == own
    return whole or any(part in name for part in _LOSSES if part != "div") or name == "kl_div"
