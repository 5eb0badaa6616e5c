"""Instrumentation: a call before each statement of a function, in a text that is loaded instead."""

from __future__ import annotations

import ast
import linecache
import warnings
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from whynan.errors import UsageError
from whynan.ops.signatures import MODULES
from whynan.replay.continuation.liveness import mangled
from whynan.verify.in_place.swap import is_same_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import CodeType


# -- A function's syntax with a call before each of its statements that tells what its names are there -----------------


TELL: Final = "_whynan_visit"
"""The name that is called, with the number of the place."""
SHOW: Final = "_whynan_value"
"""The name that is called with the number of an expression and its value, which it gives back."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Repeated = ast.ListComp | ast.SetComp | ast.GeneratorExp
_SETTINGS: Final = frozenset(name for _, parameters in MODULES.values() for name in parameters.split())
"""What an instance of a module without parameters keeps."""
CONSTRUCTION: Final = "()"
"""The last part of the name by which a module's construction is told: its class, and what it has."""
_SMALL: Final = 8
"""Of so many statements may a function be for what it reads of the module to be kept."""
_INWARD: Final = frozenset({"locals", "vars", "eval", "exec", "dir"})
_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True, slots=True)
class Chain:
    """A name and the attributes read from it: as they are written, and as they are kept (``__x`` in a class)."""

    written: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Instrumented:
    """The syntax of a file with the calls in one function.

    ``lines`` are those of the places, and ``expressions`` the texts of the calls and subscripts, by their numbers.
    ``function`` is its qualified name (``Head.forward``), None for the top of the module.
    """

    tree: ast.Module
    function: str | None
    lines: tuple[int, ...]
    expressions: tuple[str, ...]
    chains: tuple[Chain, ...]


def instrument_function(text: str, line: int) -> Instrumented:
    """The syntax of a text with the calls in the innermost function at a line; every position is as it was.

    A place is before each statement of the function, and in its lambdas and comprehensions before what they give. What
    a call or a subscript in it gives is shown, too.

    Raises:
        UsageError: where the function looks at its own names as a whole (``locals()``), which would tell.
        SyntaxError: for a text that is no Python.
    """
    tree = ast.parse(text)
    path = _enclosing_scopes(tree, line)
    names = [node.name for node in path]
    function = path[-1] if path and isinstance(path[-1], _Function) else None
    if path and function is None:
        # at the top of a class: what runs there runs once, as the module does
        names = []
    classes = [node.name for node in path if isinstance(node, ast.ClassDef)]
    held = function or tree
    if inward := sorted({n.id for n in _scope_nodes(held) if isinstance(n, ast.Name)} & _INWARD):
        raise UsageError(
            f"{'.'.join(names) or 'the module'} calls {inward[0]}(), so its names cannot be read unnoticed",
            "call the function that holds the expression from one that does not",
        )
    own = _chains(held, classes[-1] if classes and function is not None else None)
    chains = tuple(dict.fromkeys((*own, *_helper_chains(tree, held))))
    adder = _Adder()
    adder.block(held.body, head=True)
    return Instrumented(tree, ".".join(names) or None, tuple(adder.lines), tuple(adder.expressions), chains)


def instrument_functions(text: str, lines: Sequence[int]) -> tuple[ast.Module, list[Instrumented]]:
    """The syntax of a text with the calls in each function at one of some lines, and what each function tells.

    The names that the second function calls end with ``_1``, those of the third with ``_2``, and so on. A function that
    looks at its own names as a whole is left out.

    Raises:
        SyntaxError: for a text that is no Python.
    """
    tree = ast.parse(text)
    # the outer first: what is put into it may be instrumented too
    at = sorted(lines, key=lambda line: len(_enclosing_scopes(tree, line)))
    made: list[Instrumented] = []
    for line in at:
        try:
            one = instrument_function(text, line)
        except UsageError:
            continue
        if any(one.function == other.function and one.lines == other.lines for other in made):
            continue
        held, own = _innermost_function(tree, line), _innermost_function(one.tree, line)
        held.body[:] = own.body
        _rename(held, len(made))
        made.append(one)
    return tree, made


def every_function(text: str) -> list[int]:
    """A line of the top of a text and of each function in it; raises ``SyntaxError`` for a text that is no Python."""
    tree = ast.parse(text)
    return [1, *(node.body[0].lineno for node in ast.walk(tree) if isinstance(node, _Function))]


def _innermost_function(tree: ast.Module, line: int) -> _Function | ast.Module:
    path = _enclosing_scopes(tree, line)
    return path[-1] if path and isinstance(path[-1], _Function) else tree


def _rename(held: _Function | ast.Module, number: int) -> None:
    for node in ast.walk(held) if number else ():
        if isinstance(node, ast.Name) and node.id in (TELL, SHOW):
            node.id = f"{node.id}_{number}"


def _enclosing_scopes(tree: ast.Module, line: int) -> list[_Function | ast.ClassDef]:
    """The functions and classes that a line stands in, the outermost first."""
    found: list[_Function | ast.ClassDef] = []
    for node in ast.walk(tree):
        if not isinstance(node, _Function | ast.ClassDef):
            continue
        if node.body[0].lineno <= line <= (node.end_lineno or line):
            found.append(node)
    return sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)))


def _scope_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function or module, without the functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _Function | ast.ClassDef):
            yield child
            yield from _scope_nodes(child)


def _chains(held: _Function | ast.Module, cls: str | None) -> Iterator[Chain]:
    nodes = list(_scope_nodes(held))
    callees = {node.func for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            written: list[str] = []
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                written.insert(0, inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name):
                parts = (inner.id, *written)
                for length in range(1, len(parts) + 1):
                    yield Chain(parts[:length], tuple(mangled(part, cls) for part in parts[:length]))
                # an instance of a module that is called keeps what it was constructed with
                for setting in (*_SETTINGS, CONSTRUCTION) if node in callees else ():
                    yield Chain((*parts, setting), (*(mangled(part, cls) for part in parts), setting))


def _helper_chains(tree: ast.Module, held: _Function | ast.Module) -> Iterator[Chain]:
    """What the small functions of a file that are called in one of it read of the module: they may be taken in."""
    called = {n.func.id for n in _scope_nodes(held) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    for helper in tree.body:
        if isinstance(helper, ast.FunctionDef) and helper.name in called and len(helper.body) <= _SMALL:
            bound = _bound_names(helper) | (_bound_names(held) if held is not tree else set[str]())
            yield from (chain for chain in _chains(helper, None) if chain.written[0] not in bound)


def _bound_names(held: ast.AST) -> set[str]:
    stored = {n.id for n in ast.walk(held) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {n.arg for n in ast.walk(held) if isinstance(n, ast.arg)}


class _Adder(ast.NodeTransformer):
    """Puts the calls into the blocks of one function."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self.expressions: list[str] = []
        self._callees: set[ast.expr] = set()

    def block(self, statements: list[ast.stmt], *, head: bool = False) -> None:
        """Put a call before each statement, in the blocks inside them too."""
        added: list[ast.stmt] = []
        for statement in statements:
            if head and _is_heading(statement):
                added.append(statement)
                continue
            head = False
            added += [self._statement(statement), statement]
            self._enter(statement)
        statements[:] = added

    def _enter(self, statement: ast.stmt) -> None:
        if isinstance(statement, _Function | ast.ClassDef):
            return
        for node in _parts(statement):
            for name, value in ast.iter_fields(node):
                if name == "annotation":
                    continue
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    self.block(cast("list[ast.stmt]", value))
                elif isinstance(value, ast.expr):
                    setattr(node, name, self.visit(value))
                elif isinstance(value, list):
                    entries = cast("list[Any]", value)
                    entries[:] = [self.visit(v) if isinstance(v, ast.expr) else v for v in entries]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self._callees.add(node.func)
        return self._shown(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        # it may be a property, which is not asked for once more
        if isinstance(node.ctx, ast.Load) and node not in self._callees:
            return self._shown(node)
        self.generic_visit(node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.ctx, ast.Load):
            return self._shown(node)
        self.generic_visit(node)
        return node

    def _shown(self, node: ast.expr) -> ast.expr:
        self.expressions.append(ast.unparse(node))
        number = len(self.expressions) - 1
        self.generic_visit(node)
        at = _at(node)
        return ast.copy_location(
            ast.Call(ast.Name(SHOW, ast.Load(), **at), [ast.Constant(number, None, **at), node], []), node
        )

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self.generic_visit(node)
        node.body = self._before(node.body)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.ListComp:
        return self._repeated(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.SetComp:
        return self._repeated(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.GeneratorExp:
        return self._repeated(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.DictComp:
        self.generic_visit(node)
        node.value = self._before(node.value)
        return node

    def _repeated(self, node: _Node) -> _Node:
        self.generic_visit(node)
        assert isinstance(node, _Repeated)
        node.elt = self._before(node.elt)
        return node

    def _before(self, value: ast.expr) -> ast.expr:
        # the call gives None, so that the value is that of the expression, whatever it is
        return ast.copy_location(ast.BoolOp(ast.Or(), [self._call(value), value]), value)

    def _statement(self, statement: ast.stmt) -> ast.stmt:
        call = self._call(statement)
        return ast.copy_location(ast.Expr(call), call)

    def _call(self, place: ast.stmt | ast.expr) -> ast.Call:
        self.lines.append(place.lineno)
        at = _at(place)
        number = ast.Constant(len(self.lines) - 1, None, **at)
        return ast.Call(ast.Name(TELL, ast.Load(), **at), [number], [], **at)


def _at(node: ast.stmt | ast.expr) -> dict[str, int]:
    """The position at which a node begins."""
    return {
        "lineno": node.lineno,
        "col_offset": node.col_offset,
        "end_lineno": node.lineno,
        "end_col_offset": node.col_offset,
    }


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """A statement, and its parts that hold blocks: handlers, cases, the items of a ``with``."""
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.ExceptHandler | ast.match_case | ast.withitem):
            yield child


def _is_heading(statement: ast.stmt) -> bool:
    """Whether a statement must stay the first of its block: a docstring, what is imported from ``__future__``."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


# -- Another text of a file, run from the moment that a program loads it; the file itself is not touched ---------------


class Loaded:
    """The texts that files are loaded with, by path: text, or syntax that has the positions of the file's own."""

    def __init__(self, texts: Mapping[str, str | ast.Module]) -> None:
        self._texts = texts

    def install(self) -> None:
        """Have modules be loaded so, those that ``python -m`` runs too; for as long as the process lives."""
        original = cast("Callable[[Any, str], CodeType | None]", vars(SourceFileLoader).get("get_code"))
        original = original or SourceFileLoader.get_code

        def get_code(loader: Any, fullname: str) -> CodeType | None:
            code = self.code_of(str(loader.get_filename(fullname)))
            return original(loader, fullname) if code is None else code

        setattr(SourceFileLoader, "get_code", get_code)  # noqa: B010 (a function of another's class)

    def code_of(self, file: str) -> CodeType | None:
        """The code of a file that has another text; None of any other."""
        text = next((text for path, text in self._texts.items() if is_same_file(file, path)), None)
        return None if text is None else _compiled(file, text)


def _compiled(file: str, text: str | ast.Module) -> CodeType:
    if isinstance(text, str):
        # for tracebacks, sites and whatever reads its own source
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(text, file, "exec", dont_inherit=True)
