"""The double ``where``: the operand of what a selection leaves out is made harmless, too."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from whynan.fixes.python.edit import Editor
from whynan.fixes.python.formula import Edit
from whynan.fixes.python.write import ATOM, UnwritableError, Written, binding
from whynan.ops.signatures import CASTS
from whynan.ops.spelling import SYMBOLS
from whynan.ops.table import TORCH
from whynan.source.calls import function_of, operator_of
from whynan.source.text import apply_edits, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whynan.expr.from_python import Reader
    from whynan.fixes.python.edit import Root
    from whynan.source.dataflow import Definition
    from whynan.source.text import Place


# -- The expressions that a birth is part of, or that its value flows into: where a pattern may be rooted --------------


_MOST_ROOTS: Final = 200


def roots_of(reader: Reader, birth: Root) -> Iterator[Root]:
    """The birth's expression, those around it, then those that read the names that it was given; the nearest first."""
    place = reader.place
    waiting: list[Root] = [birth]
    seen: set[ast.AST] = set()
    while waiting and len(seen) < _MOST_ROOTS:
        start = waiting.pop(0)
        chain: list[Root] = [start]
        for node in place.above(start):
            if isinstance(node, ast.AugAssign):
                chain.append(node)
            if not isinstance(node, (ast.expr, ast.keyword)):
                break
            if isinstance(node, ast.expr):
                chain.append(node)
        for node in chain:
            if node not in seen:
                seen.add(node)
                if not isinstance(node, (ast.Name, ast.Attribute, ast.Starred)):
                    yield node
        waiting += [load for node in chain for load in reader.reaching.readers_of(node) if load not in seen]


def twins_of(reader: Reader, root: Root) -> list[Root]:
    """The other expressions of the function that are the same, of the same values."""
    if not isinstance(root, ast.expr) or not reader.is_pure(root):
        return []
    place, key = reader.place, reader.read(root).key
    found: list[Root] = []
    for node in ast.walk(reader.reaching.function):
        if type(node) is not type(root) or node is root or place.is_deferred(node):
            continue
        if place.function(node) is not reader.reaching.function or reader.read(node).key != key:
            continue
        if root not in place.above(node) and node not in place.above(root):
            found.append(node)
    return found


# -- The guard that a selection asks for: the operand of what it leaves out is made harmless there (double where) ------


_HARMLESS: Final = {name: ast.literal_eval(value) for name, value in TORCH.column("harmless").items()}
"""An operand with which the operator and its derivative are finite."""
_REPLACING: Final = TORCH.having("limit") | {"nan_to_num"}
"""What gives a number of its own in place of an Inf."""
_PREDICATES: Final = TORCH.having("predicate", "comparison")
_SECOND: Final = frozenset({"div", "fmod", "remainder"})
"""Operators of which the second operand is the dangerous one."""


@dataclass(frozen=True)
class Selection:
    """An expression that leaves out another: where ``mask`` holds (``when`` True) or does not, the other is taken."""

    node: ast.expr
    mask: ast.expr
    when: bool
    number: bool = False
    definitions: tuple[Definition, ...] = ()


@dataclass(frozen=True)
class DoubleWhere:
    """The edits of a double where, or why there are none; ``root`` is the selection, with which it is judged."""

    title: str
    root: Root
    edits: list[Edit] | str
    imports: set[str] = field(default_factory=set[str])
    definitions: tuple[Definition, ...] = ()


def double_where(reader: Reader, birth: Root, *, masked: bool) -> DoubleWhere | None:
    """The double where for a birth that a selection leaves out; None where no selection around it is known.

    ``masked``: a product with a mask is one too.
    """
    operand = _operand(reader, birth)
    return None if operand is None else _harmless(reader, selection_of(reader, birth, factors=masked), *operand)


def double_wheres_of_operands(reader: Reader, first: Root) -> list[DoubleWhere]:
    """The double where for each operand of what first reads something bad, where a selection leaves that out."""
    named = (n for n in _operands(reader.place, first) if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)))
    found = (_harmless(reader, selection_of(reader, node, factors=True), node, 0.0) for node in named)
    return [one for one in found if one is not None]


def _harmless(reader: Reader, chosen: Selection | None, node: ast.expr, safe: float) -> DoubleWhere | None:
    if chosen is None or _is_read_elsewhere(reader, chosen):
        return None
    title = f"a harmless operand where {shortened(reader.place.code(chosen.mask))} leaves the result out"
    try:
        edits, imports, made = _edits(reader, chosen, node, safe)
    except UnwritableError as error:
        return DoubleWhere(title, chosen.node, str(error))
    return DoubleWhere(title, chosen.node, edits, imports, (*chosen.definitions, *made))


def _is_read_elsewhere(reader: Reader, chosen: Selection) -> bool:
    """Whether anything else reads what leads to a selection: it would be given what nothing has computed."""
    within = {
        inner for value in (chosen.node, *(d.value for d in chosen.definitions)) if value for inner in ast.walk(value)
    }
    read = (node for node, found in reader.reaching.at.items() if any(d in found for d in chosen.definitions))
    return any(node not in within for node in read)


def enclosing_selection(reader: Reader, root: ast.expr) -> tuple[ast.expr, tuple[Definition, ...]] | None:
    """The selection around an expression that all that reads it goes through, with the definitions on the way to it."""
    chosen = selection_of(reader, root, factors=False, replaced=True)
    return None if chosen is None or _is_read_elsewhere(reader, chosen) else (chosen.node, chosen.definitions)


def selection_of(reader: Reader, birth: Root, *, factors: bool, replaced: bool = False) -> Selection | None:
    """The nearest selection that an expression, or the name that it is given, stands in.

    Only on demand: a product with a mask, of which it is one of the ``factors``; and ``nan_to_num``, what bounds, and a
    product with what is seen to be a mask, where what these have ``replaced`` counts as left out.
    """
    path: set[ast.AST] = {birth}
    definitions: list[Definition] = []
    for root in roots_of(reader, birth):
        for definition in reader.reaching.definitions():
            if definition.value is not None and definition.value in path and definition not in definitions:
                definitions.append(definition)
        names = {d.name for d in definitions}
        found = _selection_at(reader, root, path, names, factors=factors, replaced=replaced)
        if found is not None:
            used = {n.id for n in ast.walk(found.node) if isinstance(n, ast.Name)}
            needed = tuple(_used_definitions(definitions, used))
            return Selection(found.node, found.mask, found.when, found.number, needed)
        path.add(root)
    return None


def _used_definitions(definitions: Sequence[Definition], used: set[str]) -> list[Definition]:
    found: list[Definition] = []
    for definition in reversed(definitions):
        if definition.name in used and definition.value is not None:
            found.append(definition)
            used |= {n.id for n in ast.walk(definition.value) if isinstance(n, ast.Name)}
    return list(reversed(found))


def _selection_at(
    reader: Reader, root: Root, path: set[ast.AST], names: set[str], *, factors: bool, replaced: bool
) -> Selection | None:
    def leads(node: ast.AST) -> bool:
        if node in path:
            return True
        return isinstance(node, ast.Name) and node.id in names and reader.expand(reader.read(node)) is not None

    if isinstance(root, ast.BinOp) and isinstance(root.op, ast.Mult) and (factors or replaced):
        for inner, mask in ((root.left, root.right), (root.right, root.left)):
            # no mask has a sign
            is_signed = isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.USub)
            may_be = factors or _is_cast_mask(reader, mask)
            if leads(inner) and not leads(mask) and not is_signed and may_be and reader.read(mask).name != "number":
                return Selection(root, mask, when=True, number=True)
    if isinstance(root, ast.Subscript) and leads(root.value) and _is_of_booleans(reader, root.slice):
        return Selection(root, root.slice, when=True)
    if not isinstance(root, ast.Call):
        return None
    term = reader.read(root)
    if term.name == "where" and len(term.children) == 3:
        condition, first, second = (t.node for t in term.operands)
        if isinstance(condition, ast.expr):
            if first is not None and leads(first):
                return Selection(root, condition, when=True)
            if second is not None and leads(second):
                return Selection(root, condition, when=False)
    mask, value = term.child("mask"), term.child("input")
    if replaced and term.name in _REPLACING and value is not None and value.node is not None and leads(value.node):
        return Selection(root, root, when=True)
    if term.name != "masked_fill" or mask is None or value is None or value.node is None:
        return None
    filled = isinstance(mask.node, ast.expr) and leads(value.node)
    return Selection(root, mask.node, when=False) if filled and isinstance(mask.node, ast.expr) else None


def _is_cast_mask(reader: Reader, factor: ast.AST) -> bool:
    """Whether a factor is a mask of 0 and 1, or 1 less one."""
    match factor:
        case ast.Call(func=ast.Attribute(value=cast, attr=name)) if name in CASTS:
            return _is_of_booleans(reader, cast)
        case ast.BinOp(left=ast.Constant(value=1), op=ast.Sub(), right=mask):
            return _is_cast_mask(reader, mask)
        case ast.Name():
            made = reader.reaching.single_definition(factor)
            return made is not None and made.value is not None and _is_cast_mask(reader, made.value)
        case _:
            return _is_of_booleans(reader, factor)


def _is_of_booleans(reader: Reader, index: ast.AST) -> bool:
    """Whether an index is a mask, as far as its function shows what it was computed by."""
    match index:
        case ast.Compare():
            return True
        case ast.Call():
            return operator_of(reader.place, index)[0] in _PREDICATES
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return _is_of_booleans(reader, operand)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr(), left=left, right=right):
            return _is_of_booleans(reader, left) and _is_of_booleans(reader, right)
        case ast.Name():
            made = reader.reaching.single_definition(index)
            return made is not None and made.value is not None and _is_of_booleans(reader, made.value)
        case _:
            return False


def _operand(reader: Reader, birth: Root) -> tuple[ast.expr, float] | None:
    """The dangerous operand of an operator, and what would be harmless in its place."""
    values, in_place = _operands(reader.place, birth), False
    if isinstance(birth, (ast.BinOp, ast.AugAssign)):
        name = SYMBOLS[type(birth.op)]
        if name == "pow" and isinstance(birth, ast.AugAssign):
            return None
    elif isinstance(birth, ast.Call):
        name, in_place = operator_of(reader.place, birth)
    else:
        return None
    if name is None or name not in _HARMLESS:
        return None
    at = 1 if name in _SECOND else 0
    if at >= len(values) or (in_place and at == 0):
        return None
    return values[at], _HARMLESS[name]


def _operands(place: Place, birth: Root) -> list[ast.expr]:
    """The operands of an operator, in the order of its parameters."""
    if isinstance(birth, ast.BinOp):
        return [birth.left, birth.right]
    if isinstance(birth, ast.AugAssign):
        return [birth.target, birth.value]
    if not isinstance(birth, ast.Call):
        return []
    is_method = function_of(place, birth.func) is None
    return [*([birth.func.value] if is_method and isinstance(birth.func, ast.Attribute) else []), *birth.args]


def _edits(
    reader: Reader, chosen: Selection, node: ast.expr, safe: float
) -> tuple[list[Edit], set[str], list[Definition]]:
    """The edits, what they need imported, and the definitions of what is written in its place."""
    place = reader.place
    if not reader.is_pure(chosen.mask):
        raise UnwritableError(f"{shortened(place.code(chosen.mask))} would be evaluated twice")
    made: list[Definition] = []
    mask = _mask_source(reader, chosen.mask, place.statement(node), made)
    if _is_guarded(reader, node, chosen.mask):
        raise UnwritableError("it is written so already")
    if not place.is_whole(node):
        raise UnwritableError("the position of the expression in its string is not known")
    editor = Editor(reader)
    writer = editor.writer(node)
    if chosen.number:
        mask = f"{Written(mask, binding(mask)).within(3)} != 0"
    given = [place.code(node), repr(safe)]
    text = f"{writer.torch()}.where({mask}, {', '.join(given if chosen.when else given[::-1])})"
    return [editor.replacement_edit(node, Written(text))], writer.imports, made


def _mask_source(reader: Reader, mask: ast.expr, statement: ast.stmt, made: list[Definition]) -> str:
    """The text of a mask at an earlier statement: what has its value only later is written out, and noted."""
    place, reaching = reader.place, reader.reaching
    start, edits = place.span(mask)[0], list[Edit]()
    for name in ast.walk(mask):
        if not isinstance(name, ast.Name) or reaching.definitions_at(name) == reaching.definitions_before(
            statement, name.id
        ):
            continue
        found = reaching.single_definition(name)
        if (
            found is None
            or found.written
            or not isinstance(found.value, ast.expr)
            or not reader.is_pure(found.value)
            or place.statement(found.value) is statement
        ):
            raise UnwritableError(f"{name.id} of the mask is not known yet where the operand is read")
        text = _mask_source(reader, found.value, statement, made)
        made.append(found)
        first, last = place.span(name)
        edits.append((first - start, last - start, text if mask is name else Written(text, binding(text)).within(ATOM)))
    return apply_edits(place.code(mask), edits)


def _is_guarded(reader: Reader, node: ast.expr, mask: ast.expr) -> bool:
    """Whether an operand is already selected by the same mask."""
    term = reader.read(node)
    while (made := reader.expand(term)) is not None:
        term = made
    wanted = reader.read(mask)
    for name in ("condition", "mask"):
        given = term.child(name)
        if given is not None and term.name in ("where", "masked_fill"):
            own = given.operands[0] if given.name == "ne" and given.operands else given
            return given.key == wanted.key or own.key == wanted.key
    return False
