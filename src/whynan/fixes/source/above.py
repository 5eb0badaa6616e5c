"""Whether a part of an expression may be computed on a line of its own above the statement."""

# pyright: strict

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from whynan.fixes.source.formulas import Edit, assigned
from whynan.fixes.source.signatures import operator_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from whynan.fixes.source.places import Place
    from whynan.fixes.source.reading import Reader

Lines = tuple[tuple[str, str], ...]
"""Names, each with the text of the expression that it is given."""
Root = ast.expr | ast.AugAssign
_ONCE: Final[dict[type[ast.stmt], str]] = {
    ast.Assign: "value",
    ast.AnnAssign: "value",
    ast.AugAssign: "value",
    ast.Return: "value",
    ast.Expr: "value",
    ast.Raise: "exc",
    ast.If: "test",
    ast.For: "iter",
    ast.AsyncFor: "iter",
    ast.Match: "subject",
}
"""What is evaluated exactly once where a statement begins."""
_READ: Final = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.keyword)
_DOING: Final = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


@dataclass
class Edited:
    """The edits of one match, and what they need: modules to import, and lines above the statement of the root."""

    root: Root
    edits: list[Edit] = field(default_factory=list[Edit])
    imports: set[str] = field(default_factory=set[str])
    rewritten: str | None = None
    above: Lines = ()


def refused(reader: Reader, root: Root, moved: Sequence[ast.AST]) -> str | None:
    """Why expressions of a root, ``moved``, cannot be evaluated before the statement that it is in; None if they can.

    They must be evaluated there anyway, once, and nothing that does more than compute may come before them that came
    after them, or the other way round.
    """
    place = reader.place
    if not _begins_a_line(place, place.statement(root)) or isinstance(place.scope(root), (ast.ClassDef, ast.Lambda)):
        return "there is no line above it"
    if place.is_late(root) or not _is_always_evaluated(place, root):
        return "it may not be evaluated there, or more than once"
    if not _keeps_order(reader, root, [node for node in moved if node is root or root in place.above(node)]):
        return "what is evaluated before it may do something"
    return None


def by_statement(place: Place, everywhere: Iterable[Edited]) -> dict[ast.stmt, Lines]:
    """The lines that edits need above each statement, each of them once."""
    found: dict[ast.stmt, Lines] = {}
    for one in everywhere:
        if one.above:
            statement = place.statement(one.root)
            found[statement] = tuple(dict.fromkeys((*found.get(statement, ()), *one.above)))
    return found


def insertions(place: Place, lines: Mapping[ast.stmt, Lines]) -> list[Edit]:
    """The edits that write lines above statements."""
    end = "\r\n" if "\r\n" in place.text else "\n"
    edits: list[Edit] = []
    for statement, own in lines.items():
        start = place.span(statement)[0]
        indent = place.text[_line_start(place, start) : start]
        edits.append((start, start, "".join(f"{assigned(*line)}{end}{indent}" for line in own)))
    return edits


def _line_start(place: Place, offset: int) -> int:
    return max(place.text.rfind("\n", 0, offset), place.text.rfind("\r", 0, offset)) + 1


def _begins_a_line(place: Place, statement: ast.stmt) -> bool:
    start = place.span(statement)[0]
    begin = _line_start(place, start)
    goes_on = place.text[:begin].rstrip("\r\n").endswith("\\")
    return not place.text[begin:start].strip() and not place.text.startswith("elif", start) and not goes_on


def _is_always_evaluated(place: Place, root: Root) -> bool:
    """Whether an expression is evaluated exactly once each time that its statement is reached."""
    child: ast.AST = root
    for parent in place.above(root) if isinstance(root, ast.expr) else ():
        match parent:
            case ast.stmt():
                return _is_first(parent, child)
            case ast.IfExp(test=first) | ast.BoolOp(values=[first, *_]) if child is not first:
                return False
            case ast.Compare(comparators=[_, *rest]) if child in rest:
                return False
            case _:
                child = parent
    return True


def _is_first(statement: ast.stmt, child: ast.AST) -> bool:
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return child is statement.items[0]
    name = _ONCE.get(type(statement))
    return name is not None and getattr(statement, name) is child


def _keeps_order(reader: Reader, root: Root, moved: Sequence[ast.AST]) -> bool:
    """Whether what does more than compute is evaluated in the same order, if some parts of a root are moved up."""
    place = reader.place
    around = list(itertools.takewhile(lambda n: not isinstance(n, ast.stmt), place.above(root)))
    if isinstance(root, ast.stmt):
        around = []
    top = around[-1] if around else root
    end = place.span(root)[1]
    doing = [n for n in ast.walk(top) if n not in around and _does(reader, n) and _start(place, n) < end]
    if any(isinstance(n, ast.Call) and operator_of(place, n)[1] for n in doing):
        return False
    first = list(dict.fromkeys(_holding(place, moved, node) for node in doing))
    if not first:
        return True
    held = first[0]
    return len(first) == 1 and held is not None and all(_is_read(place, n) for n in _before(place, top, held))


def _does(reader: Reader, node: ast.AST) -> bool:
    """Whether a node may do more than compute a value."""
    return isinstance(node, _DOING) or (isinstance(node, ast.Call) and not reader.is_pure_call(node))


def _start(place: Place, node: ast.AST) -> int:
    return place.span(node)[0] if isinstance(node, ast.expr) else -1


def _holding(place: Place, moved: Sequence[ast.AST], node: ast.AST) -> ast.AST | None:
    """The part that is moved which a node is in."""
    above = {node, *place.above(node)}
    return next((part for part in moved if part in above), None)


def _before(place: Place, top: ast.AST, held: ast.AST) -> list[ast.AST]:
    """What is evaluated before a part of an expression."""
    around = {held, *place.above(held)}
    start = _start(place, held)
    return [n for n in ast.walk(top) if n not in around and isinstance(n, ast.expr) and place.span(n)[0] < start]


def _is_read(place: Place, node: ast.AST) -> bool:
    """Whether an expression is a name, a number, or what a module is imported for: no call can change it."""
    return isinstance(node, _READ) or (isinstance(node, ast.Attribute) and place.meaning(node) is not None)
