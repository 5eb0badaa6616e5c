"""The source expression that an exported node stands for, in functions of ``cond`` and ``scan`` too."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from whynan.ops import spelling
from whynan.ops.table import TORCH

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from whynan.source.syntax import Spanned, Syntax


# -- Which expression of a line an exported node stands for: by operator, operand and order, or none -------------------


_WRITTEN: Final = re.compile(r"%(?P<name>\w+)\s*:")
_TARGET: Final = re.compile(r"target=(?:torch\.ops\.)?(?P<name>(?:aten|prims)\.[A-Za-z0-9_.]+)")
_FIRST: Final = re.compile(r"\(args = \(%(?P<name>\w+)")
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

_SILENT: Final = TORCH.having("no-node") | frozenset(
    "len range zip enumerate int bool list tuple dict isinstance getattr print super".split()
)
"""Calls that calculate nothing of which a node of another name is left."""


class ExportedNode(NamedTuple):
    """A node as the exporter describes it: the value that it writes, its operator, and the value it is given first."""

    value: str
    operator: str
    first: str | None


def parse_node_description(description: str) -> ExportedNode | None:
    """What ``%div : ... = call_function[target=torch.ops.aten.div.Tensor](args = (%x, %y), ...)`` says."""
    target = _TARGET.search(description)
    if target is None:
        return None
    value, first = _WRITTEN.search(description), _FIRST.search(description)
    operator = spelling.canonical(spelling.base_of(target["name"]))
    return ExportedNode("" if value is None else value["name"], operator, None if first is None else first["name"])


def matching_expression(
    nodes: Sequence[Spanned], mine: ExportedNode, beside: Sequence[ExportedNode], parents: Mapping[ast.AST, ast.AST]
) -> Spanned | None:
    """The expression that asked for a node; None where it may be more than one, or none is known.

    Args:
        nodes: the expressions and statements of the line.
        mine: the node.
        beside: all nodes of the line, in the order in which they run; empty where they are not known.
        parents: what each node of the source is part of.

    Expressions are evaluated in a known order, and so the nodes of one operator are theirs one by one where there are
    as many, or as many for each turn of a loop. Where there are not, since the exporter has merged what is calculated
    twice, the line is told and no expression.
    """
    there = frozenset(other.operator for other in (*beside, mine))
    asking = _in_order(candidates(nodes, mine.operator, there), parents)
    if mine not in beside:
        return asking[0] if len(asking) == 1 else None
    free = _stored(nodes)
    hidden = any(_hides(node, there) for node in nodes)
    turn = _turn(beside, mine.operator, len(asking))
    # a call that nothing tells of may have been exported as just the operators of one more turn
    if turn and not (hidden and turn < len(beside) and len(there) == 1):
        place = beside.index(mine)
        begin = place - place % turn
        same = [other for other in beside[begin : begin + turn] if other.operator == mine.operator]
        made = {other.value for other in beside[begin : begin + turn]}
        if all(_fits(node, other, made, free) for node, other in zip(asking, same, strict=True)):
            return asking[same.index(mine)]
        return None
    if len(asking) > 1 and sum(other.operator == mine.operator for other in beside) < len(asking):
        made = {other.value for other in beside}
        asking = [node for node in asking if _fits(node, mine, made, free)]
    return asking[0] if len(asking) == 1 and not hidden else None


def candidates(nodes: Sequence[Spanned], operator: str, there: Collection[str]) -> list[Spanned]:
    """The expressions that may ask for an operator, where those operators are there."""
    return [node for node in nodes if operator in _operators(node, there)]


def _turn(beside: Sequence[ExportedNode], operator: str, wanted: int) -> int:
    """After how many nodes all begins anew, with as many of an operator each time as are wanted; 0 for never."""
    operators = [other.operator for other in beside]
    for length in range(1, len(operators) + 1):
        if len(operators) % length or operators[:length].count(operator) != wanted or not wanted:
            continue
        if operators == operators[:length] * (len(operators) // length):
            return length
    return 0


def _operators(node: Spanned, there: Collection[str]) -> frozenset[str]:
    """The operators that an expression asks for: that of its name where it is there, else what may stand for it."""
    spelt = frozenset(_spelt(node))
    match node:
        case ast.BinOp(op=ast.Div(), left=left) if "reciprocal" in there:
            number = isinstance(left, ast.Constant)
            return frozenset({"reciprocal", "mul"} if number else {"div", "reciprocal", "mul"})
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5)):
            return spelt | {"sqrt"}
        case _:
            found = spelt
            for name in spelt - set(there):
                dispatched = spelling.DISPATCHED[name][1] if name in spelling.DISPATCHED else ()
                found |= {*TORCH.lists("exported").get(name, ()), *map(spelling.canonical, dispatched)}
            return found


def _spelt(node: Spanned) -> Iterable[str]:
    """The operators that an expression names, or has the symbol of."""
    match node:
        case ast.Call():
            name = callee_name(node)
            return () if name is None else (spelling.canonical(name),)
        case ast.BinOp(op=symbol) | ast.AugAssign(op=symbol):
            return (spelling.SYMBOLS[type(symbol)],)
        case ast.UnaryOp(op=symbol):
            return spelling.UNARY.get(type(symbol), ())
        case ast.Compare(ops=[comparison]):
            name = spelling.COMPARISONS.get(type(comparison))
            return () if name is None else (name,)
        case _:
            return ()


def callee_name(call: ast.Call) -> str | None:
    """The name of what is called: ``c`` of ``a.b.c()``."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return None


def _hides(node: Spanned, there: Collection[str]) -> bool:
    """Whether an expression may have been exported as operators that do not tell of it."""
    if not isinstance(node, ast.Call):
        return False
    name = callee_name(node)
    return name is None or (name not in _SILENT and spelling.canonical(name) not in there)


def _fits(node: Spanned, asked: ExportedNode, made: Collection[str], free: Collection[str]) -> bool:
    """Whether an expression can be given what the node was given: a variable holds no result of its own line."""
    operand: ast.expr | None = None
    match node:
        case _ if asked.operator not in _spelt(node):
            pass  # one of several nodes, which are given what the others have made
        case ast.BinOp(left=left):
            operand = None if asked.operator in TORCH.having("commutative") else left
        case ast.Call(func=ast.Attribute(value=value), args=arguments):
            # torch.log(x), or x.log()
            function = isinstance(value, ast.Name) and value.id in ("torch", "F") and arguments
            operand = arguments[0] if function else value
        case _:
            pass
    while isinstance(operand, ast.Attribute):
        operand = operand.value
    plain = isinstance(operand, ast.Name) and operand.id not in free
    return not (plain and asked.first in made)


def _stored(nodes: Iterable[Spanned]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}


def _in_order(nodes: list[Spanned], parents: Mapping[ast.AST, ast.AST]) -> list[Spanned]:
    """Expressions in the order in which Python evaluates them."""
    if len(nodes) < 2:
        return nodes
    statements = dict.fromkeys(_statement(node, parents) for node in nodes)
    ordered = sorted(statements, key=lambda found: (found.lineno, found.col_offset))
    wanted = set(nodes)
    return list(dict.fromkeys(node for found in ordered for node in _evaluated(found) if node in wanted))


def _statement(node: Spanned, parents: Mapping[ast.AST, ast.AST]) -> ast.stmt:
    found: ast.AST = node
    while not isinstance(found, ast.stmt):
        found = parents[found]
    return found


def _evaluated(root: ast.AST) -> Iterator[Spanned]:
    """The expressions of a statement, each after those that it is made of; without what a lambda only will evaluate."""
    waiting = [(root, False)]
    while waiting:
        node, entered = waiting.pop()
        if entered:
            if isinstance(node, (ast.expr, ast.stmt)):
                yield node
            continue
        waiting.append((node, True))
        waiting += [(child, False) for child in reversed(_children(node))]


def _children(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.Lambda():
            return []
        case ast.Assign(targets=targets, value=value):
            return [value, *targets]
        case ast.comprehension(target=target, iter=iterated, ifs=conditions):
            return [iterated, target, *conditions]
        case _ if isinstance(node, _COMPREHENSIONS):
            return [*node.generators, *(n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.comprehension))]
        case _:
            return list(ast.iter_child_nodes(node))


# -- Functions that are handed to a branch or a loop (``torch.cond``, ``scan``): from which expression a node is -------


BODY: Final = "<eval_with_key>"
"""How the name of a file begins that PyTorch makes for such a function when it is exported."""
_TAKERS: Final = frozenset("cond while_loop scan map associative_scan".split())
_Function: TypeAlias = "ast.FunctionDef | ast.Lambda"


def control_flow_call(nodes: Sequence[Spanned]) -> ast.Call | None:
    """The only call in a line that takes functions for a branch or a loop."""
    calls = [node for node in nodes if isinstance(node, ast.Call) and callee_name(node) in _TAKERS]
    return calls[0] if len(calls) == 1 else None


def expression_in_branch(
    syntax: Syntax, call: ast.Call, mine: ExportedNode, beside: Sequence[ExportedNode]
) -> Spanned | None:
    """The expression that a node stands for in one of the functions that a call takes.

    None where that is not certain: which function it is must be told by the operators of all its nodes, each as often
    as the function asks for it.
    """
    if mine not in beside:
        return None
    counts = Counter(asked.operator for asked in beside)
    there = frozenset(counts)
    found: list[list[Spanned]] = []
    for function in _function_arguments(syntax, call):
        nodes = list(_parts(function))
        if all(len(candidates(nodes, operator, there)) == count for operator, count in counts.items()):
            found.append(nodes)
    return matching_expression(found[0], mine, beside, syntax.parents) if len(found) == 1 else None


def _function_arguments(syntax: Syntax, call: ast.Call) -> Iterator[_Function]:
    """The functions among the arguments, as far as the file has just one of their name."""
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        match argument:
            case ast.Lambda():
                yield argument
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
                named = [node for node in syntax.parents if isinstance(node, ast.FunctionDef) and node.name == name]
                if len(named) == 1:
                    yield named[0]
            case _:
                pass


def _parts(function: _Function) -> Iterator[Spanned]:
    """The expressions and statements of a function, without those of functions in it."""
    waiting: list[ast.AST] = [function.body] if isinstance(function, ast.Lambda) else [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, (ast.expr, ast.stmt)):
            yield node
        waiting += ast.iter_child_nodes(node)
