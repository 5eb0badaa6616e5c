"""A function that returns an activation, and a sequence of modules that ends in one."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from whynan.expr.from_python import Reader
from whynan.fixes.python.edit import hoist_obstacle
from whynan.ops.signatures import SIGNATURES, VIEWS
from whynan.ops.table import TORCH
from whynan.source.calls import operator_of
from whynan.source.text import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from whynan.fixes.python.formula import Edit

ACTIVATIONS: Final = TORCH.having("saturating") & TORCH.column("logarithm").keys()
ASKED: Final = "return_logits"
OF_ROWS: Final = "torch.softmax"
"""The activation that is not one of each element."""
LEAVES_ALONE: Final = frozenset(
    {"parameters", "named_parameters", "state_dict", "load_state_dict", "train", "eval", "to", "zero_grad"}
)
"""What may be asked of a sequence of modules that is taken apart."""


@dataclass(frozen=True, slots=True)
class Producer:
    """A function that returns an activation, or a call of a sequence of modules that ends in one.

    ``index``: of which element, where it returns several. ``activation`` is a call with ``{}`` for the logits.
    """

    path: str
    name: str
    owner: str
    index: int | None
    activation: str
    edits: tuple[Edit, ...]
    rivals: tuple[ast.FunctionDef, ...] = ()
    """What the program's other models do when they are called."""

    @property
    def qualified(self) -> str:
        """Its name as a reader says it."""
        return f"{self.owner}.{self.name}" if self.owner else self.name


def producers_of(path: str, text: str) -> Iterator[Producer]:
    """The functions of a file that return an activation and compute it nowhere else."""
    if not any(name in text.lower() for name in ACTIVATIONS):
        return
    place = place_of(text)
    for function in place.parents if place.tree is not None else ():
        parent = place.parents.get(function)
        if isinstance(function, ast.FunctionDef) and isinstance(parent, (ast.Module, ast.ClassDef)):
            owner = parent.name if isinstance(parent, ast.ClassDef) else ""
            yield from _producers_in(path, Reader(place, function), function, owner)


def _producers_in(path: str, reader: Reader, function: ast.FunctionDef, owner: str) -> Iterator[Producer]:
    place = reader.place
    inner = [node for node in ast.walk(function) if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom))]
    parameter = _parameter(place, function)
    if len(inner) != 1 or parameter is None or function.decorator_list or ASKED in place.names:
        return
    value = getattr(inner[0], "value", None)
    elements: list[ast.expr] = value.elts if isinstance(value, ast.Tuple) else [value] if value is not None else []
    for number, element in enumerate(elements):
        node = _returned(reader, element)
        inner = None if node is None else part_of(reader, node)
        found = None if inner is None else activation_of(reader, inner)
        if inner is None or found is None or any(isinstance(a, (ast.With, ast.AsyncWith)) for a in place.above(inner)):
            continue
        if inner is not node and found[0].startswith(OF_ROWS):
            continue
        edits = _logits_edits(reader, inner, found[1], is_part=inner is not node)
        if edits is not None:
            index = number if isinstance(value, ast.Tuple) else None
            yield Producer(path, function.name, owner, index, found[0], (parameter, *edits))


def _returned(reader: Reader, element: ast.expr) -> ast.expr | None:
    """The expression of what is returned, where nothing else reads it."""
    if not isinstance(element, ast.Name):
        return element
    made = reader.reaching.single_definition(element)
    if made is None or made.written or not isinstance(made.value, ast.expr):
        return None
    readers = [node for node, found in reader.reaching.at.items() if made in found]
    match reader.place.parents.get(made.value):
        case ast.Assign(targets=[ast.Name()]) | ast.AnnAssign():
            return made.value if readers == [element] else None
        case _:
            return None


def _parameter(place: Place, function: ast.FunctionDef) -> Edit | None:
    """The edit that gives a function the parameter by which it is asked for the logits."""
    given = function.args
    nodes: list[ast.AST] = [*given.args, *given.defaults, *given.kwonlyargs, *(d for d in given.kw_defaults if d)]
    if not given.args or given.posonlyargs or given.vararg or given.kwarg:
        return None
    end = max(place.span(cast("ast.expr", node))[1] for node in nodes)
    star = "" if given.kwonlyargs else "*, "
    return end, end, f", {star}{ASKED}=False"


def activation_of(reader: Reader, node: ast.expr) -> tuple[str, ast.expr | str] | None:
    """The call of an activation with ``{}`` for its operand, and the operand: as it is, or as it would be written."""
    if not isinstance(node, ast.Call):
        return None
    last = _last_of_sequence(reader, node)
    term = reader.read(node)
    if last is not None:
        term = reader.read(ast.copy_location(ast.Call(last, [ast.Name("x", ast.Load())], []), node))
    if term.name not in ACTIVATIONS or len(term.children) != len(SIGNATURES.get(term.name, ("input",))):
        return None
    settings = [(name, child) for name, child in term.children if name != "input"]
    texts = [f", {name}={ast.unparse(child.node)}" for name, child in settings if _is_literal(child.node)]
    operand = term.child("input")
    if len(texts) != len(settings) or operand is None or not isinstance(operand.node, ast.expr):
        return None
    call = f"torch.{term.name}({{}}{''.join(texts)})"
    if last is not None:
        given = ", ".join(reader.place.code(value) for value in node.args)
        return call, f"{reader.place.code(node.func)}[:-1]({given})"
    return call, operand.node


def _is_literal(node: object) -> bool:
    match node:
        case ast.Constant() | ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case _:
            return False


def _last_of_sequence(reader: Reader, call: ast.Call) -> ast.Call | None:
    """The construction of the last module of a sequence that is called."""
    made = reader.construction(call.func)
    if not isinstance(made, ast.Call) or made is call.func or len(made.args) < 2 or made.keywords or call.keywords:
        return None
    names, last = reader.place.meaning(made.func), made.args[-1]
    is_sequence = names is not None and names[:2] == ["torch", "nn"] and names[-1] == "Sequential"
    return last if is_sequence and isinstance(last, ast.Call) else None


def sequence_of(reader: Reader, call: ast.Call) -> Producer | None:
    """What a call of a sequence of modules is, whose last one is an activation."""
    if _last_of_sequence(reader, call) is None or (found := activation_of(reader, call)) is None:
        return None
    return Producer("", reader.place.code(call.func), "", None, found[0], ())


def is_only_called(texts: Iterable[str], name: str) -> bool:
    """Whether nothing but calls, and what leaves its modules alone, is made of a sequence of modules of a name."""
    last = name.rpartition(".")[2]
    for text in texts:
        place = place_of(text)
        for node in place.parents:
            named = (isinstance(node, ast.Attribute) and node.attr == last) or (
                isinstance(node, ast.Name) and node.id == last
            )
            parent = place.parents.get(node)
            if not named or isinstance(getattr(node, "ctx", None), ast.Store):
                continue
            is_called = isinstance(parent, ast.Call) and parent.func is node
            is_called |= isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Load)
            if not is_called and not (isinstance(parent, ast.Attribute) and parent.attr in LEAVES_ALONE):
                return False
    return True


def _logits_edits(reader: Reader, node: ast.expr, operand: ast.expr | str, *, is_part: bool) -> tuple[Edit, ...] | None:
    """The edits that have an activation's operand in its place where that is asked for."""
    place = reader.place
    start, end = place.span(node)
    opened, closed = ("(", ((end, end, ")"),)) if is_part else ("", ())
    if isinstance(operand, (str, ast.Name)):
        logits = operand if isinstance(operand, str) else operand.id
        return (start, start, f"{opened}{logits} if {ASKED} else "), *closed
    if hoist_obstacle(reader, node, [node]) is not None:
        return None
    statement, name = place.statement(node), free_name(reader, "logits")
    head = place.span(statement)[0]
    line = f"{name} = {place.code(operand)}{newline_of(place)}{indent_of(place, statement)}"
    choice = start, start, f"{opened}{name} if {ASKED} else "
    return (head, head, line), choice, (*place.span(operand), name), *closed


def indent_of(place: Place, statement: ast.stmt) -> str:
    return place.text[place.line_start(statement.lineno) : place.span(statement)[0]]


def newline_of(place: Place) -> str:
    return "\r\n" if "\r\n" in place.text else "\n"


def free_name(reader: Reader, wanted: str, taken: Collection[str] = ()) -> str:
    """A name that nothing in the function has, nor what is taken."""
    function, place = reader.reaching.function, reader.place
    inner = ast.walk(function)
    known = place.names if isinstance(function, ast.Module) else {name for node in inner for name in _names(node)}
    names = (wanted, *(f"{wanted}_{number}" for number in range(2, 100)))
    return next(name for name in names if name not in known and name not in taken)


def _names(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return tuple(names)
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return tuple((alias.asname or alias.name).partition(".")[0] for alias in aliases)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return (name,)
        case _:
            return ()


def part_of(reader: Reader, node: ast.expr) -> ast.expr:
    """What an expression is a view of, or a part: ``p`` of ``p.squeeze(1)[:, 0]``."""
    while True:
        match node:
            case ast.Subscript(value=inner):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner)) if operator_of(reader.place, node)[0] in VIEWS:
                node = inner
            case _:
                return node
