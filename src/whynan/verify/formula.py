"""A formula of the program as a function: compiled from source, lifted out of its surroundings."""

from __future__ import annotations

import ast
import builtins
import copy
import itertools
import keyword
import math
import re
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from whynan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from whynan.fixes.candidates import Formula


_NAME: Final = "_formula"


def compile_formula(formula: Formula, namespace: Mapping[str, Any] = {}) -> Callable[..., Any]:
    """The formula as a function of its parameters, given by keyword; it returns what the body returns.

    The body sees ``torch``, ``math`` and the builtins, above these ``namespace`` (the globals of the file that it was
    taken from), and above all what its own imports bring. Raises ``UsageError`` where an import fails or the body is
    no Python.
    """
    import torch

    names: dict[str, Any] = {"torch": torch, "math": math, **namespace, "__builtins__": builtins}
    for statement in formula.imports:
        try:
            exec(compile(statement, "<import>", "exec"), names)  # the program's own import, which the program has run
        except Exception as error:
            raise UsageError(
                f"line {formula.line} needs {statement.strip()!r}, which fails here: {error}",
                "install what it names, or run where the program ran",
            ) from error
    signature = f"*, {', '.join(formula.parameters)}" if formula.parameters else ""
    text = f"def {_NAME}({signature}):\n{textwrap.indent(textwrap.dedent(formula.body), '    ')}\n"
    try:
        exec(compile(text, f"<formula at line {formula.line}>", "exec"), names)
    except SyntaxError as error:
        raise UsageError(
            f"the formula at line {formula.line} is no Python: {error.msg}", "report this, with the line"
        ) from error
    return names[_NAME]


# -- Lifted formulas ---------------------------------------------------------------------------------------------------


_LONGEST: Final = 32


def lift_expressions(
    original: Formula, repaired: Formula, known: Collection[str], foreign: Collection[str] = ()
) -> tuple[Formula, Formula] | None:
    """Two formulas that read only what is known, in place of two that do not.

    An expression that is known and reads an input which is not becomes an input itself: ``self.norm(x)`` where ``self``
    is unknown and what the call gave is not. The innermost such expression; None where that does not do. So does every
    call of a function that is ``foreign``, which is not to be run again.

    Args:
        original: one formula.
        repaired: the other.
        known: the texts of expressions whose values are known, as ``ast.unparse`` writes them.
        foreign: what functions are called by that are not to be run, as it is written (``utils.log``).
    """
    first, second = _Lifter(original, known, foreign), _Lifter(repaired, known, foreign)
    found = dict.fromkeys([*first.found, *second.found])
    taken = {*original.parameters, *repaired.parameters, *_names(original), *_names(repaired)}
    names: dict[str, str] = {}
    for text in found:
        names[text] = _name(text, {*taken, *names.values()})
    made = first.formula(names), second.formula(names)
    parameters = dict(pair for one in made for pair in zip(one.parameters, one.inputs, strict=True))
    if any(text not in known for text in parameters.values()) or any(calls(one, foreign) for one in made):
        return None
    whole = {"inputs": tuple(parameters.values()), "parameters": tuple(parameters)}
    return replace(made[0], **whole), replace(made[1], **whole)


def calls(formula: Formula, foreign: Collection[str]) -> str | None:
    """The first of some functions that a formula calls."""
    tree = ast.parse(textwrap.dedent(formula.body))
    called = (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return next((name for name in called if name in foreign), None)


def _names(formula: Formula) -> set[str]:
    """What is called something in a formula."""
    tree = ast.parse(textwrap.dedent(formula.body))
    made = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return made | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _name(text: str, taken: set[str]) -> str:
    """A name that says what expression it stands for: ``self_norm_x``."""
    wanted = re.sub(r"\W+", "_", text).strip("_")[:_LONGEST] or "value"
    wanted = f"_{wanted}" if wanted[0].isdigit() or keyword.iskeyword(wanted) else wanted
    return next(name for k in itertools.count() if (name := wanted + "_" * k) not in taken)


class _Lifter(ast.NodeTransformer):
    """Finds the expressions of one formula that are to be its inputs."""

    def __init__(self, formula: Formula, known: Collection[str], foreign: Collection[str]) -> None:
        self._formula = formula
        self._known = known
        self._foreign = foreign
        self._sources = dict(zip(formula.parameters, formula.inputs, strict=True))
        self._names: Mapping[str, str] = {}
        self.found: list[str] = []
        self._tree = ast.parse(textwrap.dedent(formula.body))
        self.visit(copy.deepcopy(self._tree))

    def formula(self, names: Mapping[str, str]) -> Formula:
        """The formula with the expressions as inputs of these names."""
        self._names = names
        tree = self.visit(copy.deepcopy(self._tree))
        read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        sources = {**self._sources, **{name: text for text, name in names.items()}}
        kept = {parameter: text for parameter, text in sources.items() if parameter in read}
        return replace(self._formula, inputs=tuple(kept.values()), parameters=tuple(kept), body=ast.unparse(tree))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self._lifted(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self._lifted(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._lifted(node)

    def _lifted(self, node: ast.expr) -> ast.expr:
        text = self._written(node)
        is_foreign = isinstance(node, ast.Call) and ast.unparse(node.func) in self._foreign
        self.generic_visit(node)
        unknown = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & {
            parameter for parameter, source in self._sources.items() if source not in self._known
        }
        if not (unknown or is_foreign) or text not in self._known:
            return node
        self.found.append(text)
        return ast.Name(self._names.get(text, "_"), ast.Load())

    def _written(self, node: ast.expr) -> str:
        """An expression as the file has it."""
        return ast.unparse(_Sourced(self._sources).visit(copy.deepcopy(node)))


class _Sourced(ast.NodeTransformer):
    """Puts what parameters stand for in their places."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources

    def visit_Name(self, node: ast.Name) -> ast.expr:
        source = self._sources.get(node.id)
        return node if source is None else ast.parse(source, mode="eval").body
