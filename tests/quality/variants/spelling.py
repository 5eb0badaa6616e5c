"""The spellings of an expression: the same operations, written as programs write them."""

from __future__ import annotations

import ast
import copy
from typing import Final

import torch

ALIASES: Final = {
    "torch.softmax": "F.softmax",
    "torch.log_softmax": "F.log_softmax",
    "torch.sigmoid": "torch.special.expit",
    "torch.logsumexp": "torch.special.logsumexp",
    "torch.log1p": "torch.special.log1p",
    "torch.expm1": "torch.special.expm1",
    "torch.exp2": "torch.special.exp2",
    "torch.erfinv": "torch.special.erfinv",
    "torch.logit": "torch.special.logit",
    "torch.digamma": "torch.special.psi",
    "torch.lgamma": "torch.special.gammaln",
    "torch.abs": "torch.absolute",
    "torch.clamp": "torch.clip",
    "torch.acos": "torch.arccos",
    "torch.asin": "torch.arcsin",
    "torch.acosh": "torch.arccosh",
    "torch.atanh": "torch.arctanh",
    "torch.atan": "torch.arctan",
    "torch.atan2": "torch.arctan2",
    "torch.norm": "torch.linalg.norm",
    "torch.logdet": "torch.Tensor.logdet",
    "torch.matmul": "torch.linalg.matmul",
    "torch.relu": "F.relu",
    "torch.tanh": "F.tanh",
    "torch.sqrt": "torch.Tensor.sqrt",
    "torch.log": "torch.Tensor.log",
    "torch.exp": "torch.Tensor.exp",
}
"""Other names of torch's functions."""
_OPERATORS: Final = {
    ast.Add: "torch.add",
    ast.Sub: "torch.subtract",
    ast.Mult: "torch.multiply",
    ast.Div: "torch.divide",
    ast.Pow: "torch.pow",
}
_ASSIGNED: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
Statements = list[tuple[str, ast.expr]]


def parsed(code: str) -> ast.expr:
    """An expression's tree."""
    return ast.parse(code, mode="eval").body


def called(node: ast.AST) -> str:
    """The dotted name of the function of a call; empty for anything else."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))


class _Methods(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        module, _, name = called(node).rpartition(".")
        if module not in ("torch", "F") or not hasattr(torch.Tensor, name) or not node.args or _is_number(node.args[0]):
            return node
        if name == "where":
            if _is_number(node.args[1]):
                return node
            first, receiver, *rest = node.args
            return ast.Call(ast.Attribute(receiver, name), [first, *rest], node.keywords)
        return ast.Call(ast.Attribute(node.args[0], name), node.args[1:], node.keywords)


class _Aliases(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        other = ALIASES.get(called(node))
        return node if other is None else ast.Call(parsed(other), node.args, node.keywords)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        function = _OPERATORS.get(type(node.op))
        if function is None or (_is_number(node.left) and _is_number(node.right)):
            return node
        left, right = node.left, node.right
        if _is_number(left):
            if isinstance(node.op, ast.Sub):
                return ast.Call(parsed("torch.rsub"), [right, left], [])
            if not isinstance(node.op, ast.Add | ast.Mult):
                return node
            left, right = right, left
        return ast.Call(parsed(function), [left, right], [])


def methods(code: str) -> str:
    """Functions as methods of their first operand."""
    return ast.unparse(ast.fix_missing_locations(_Methods().visit(parsed(code))))


def aliases(code: str) -> str:
    """Functions by their other names, and operators as functions."""
    return ast.unparse(ast.fix_missing_locations(_Aliases().visit(parsed(code))))


class _Split(ast.NodeTransformer):
    def __init__(self) -> None:
        self.statements: Statements = []

    def _named(self, node: ast.expr) -> ast.expr:
        name = f"t{len(self.statements)}"
        self.statements.append((name, node))
        return ast.Name(name)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self.visit(argument) for argument in node.args]
        node.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return self._named(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if _is_number(node.left) and _is_number(node.right):
            return node
        self.generic_visit(node)
        return self._named(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if _is_number(node) or isinstance(node.operand, ast.Attribute):
            return node
        self.generic_visit(node)
        return self._named(node)


def split(code: str) -> Statements:
    """One statement for each operation; the last makes the result."""
    walk = _Split()
    result = walk.visit(copy.deepcopy(parsed(code)))
    if not walk.statements or ast.unparse(result) != walk.statements[-1][0]:
        walk.statements.append((f"t{len(walk.statements)}", result))
    return walk.statements


def lines(statements: Statements) -> list[str]:
    """Statements as text, with the return of the last."""
    return [f"{name} = {ast.unparse(node)}" for name, node in statements] + [f"return {statements[-1][0]}"]


def _names(node: ast.AST) -> list[str]:
    return [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]


def helped(code: str, operands: list[str]) -> tuple[list[str], list[str]]:
    """The first half of the operations in a function ``part`` elsewhere, the rest behind its call."""
    statements = split(code)
    middle = max(1, len(statements) // 2)
    first, rest = statements[:middle], statements[middle:]
    read = {name for _, node in rest for name in _names(node)}
    out = [name for name, _ in first if name in read] or [first[-1][0]]
    part = [*lines(first)[:-1], f"return {', '.join(out)}"]
    call = f"{', '.join(out)} = part({', '.join(operands)})"
    return part, [call, *(lines(rest) if rest else [f"return {out[-1]}"])]


def in_place(code: str, *, last_only: bool = False) -> list[str]:
    """Operations written into their first operand, where that is read nowhere else afterwards."""
    statements = split(code)
    text: list[str] = []
    alias: dict[str, str] = {}
    for i, (name, node) in enumerate(statements):
        later = [n for _, other in statements[i + 1 :] for n in _names(other)]
        receiver = _receiver(node)
        eligible = receiver is not None and (not last_only or i == len(statements) - 1)
        if eligible and receiver is not None and not receiver.startswith("t"):
            # an operand of the program is copied before it is written into
            text.append(f"{name} = {receiver}.clone()")
            made = _written(node, name, alias)
        elif eligible and receiver is not None and receiver not in later and _names(node).count(receiver) == 1:
            made = _written(node, alias.get(receiver, receiver), alias)
            alias[name] = alias.get(receiver, receiver) if made else name
        else:
            made = None
        if made is None:
            text = [line for line in text if not line.startswith(f"{name} = ")]
            alias.pop(name, None)
            text.append(f"{name} = {_renamed(node, alias)}")
        else:
            text.append(made)
    last = statements[-1][0]
    return [*text, f"return {alias.get(last, last)}"]


def _receiver(node: ast.expr) -> str | None:
    """The operand that an operation could be written into."""
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name):
        module, _, name = called(node).rpartition(".")
        return node.args[0].id if module == "torch" and hasattr(torch.Tensor, name + "_") else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ASSIGNED) and isinstance(node.left, ast.Name):
        return node.left.id
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Name):
        return node.operand.id
    return None


def _written(node: ast.expr, into: str, alias: dict[str, str]) -> str | None:
    if isinstance(node, ast.Call):
        name = called(node).rpartition(".")[2]
        rest = [_renamed(a, alias) for a in node.args[1:]]
        rest += [f"{k.arg}={_renamed(k.value, alias)}" for k in node.keywords]
        return f"{into}.{name}_({', '.join(rest)})"
    if isinstance(node, ast.BinOp):
        symbol = ast.unparse(ast.BinOp(ast.Name("a"), node.op, ast.Name("b")))[2:-2]
        return f"{into} {symbol}= {_renamed(node.right, alias)}"
    return f"{into}.neg_()"


class _Rename(ast.NodeTransformer):
    def __init__(self, alias: dict[str, str]) -> None:
        self._alias = alias

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._alias.get(node.id, node.id))


def _renamed(node: ast.expr, alias: dict[str, str]) -> str:
    return ast.unparse(_Rename(alias).visit(copy.deepcopy(node)))
