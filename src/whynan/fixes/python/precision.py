"""A piece of a function in float32: where a half format has no room for it, up to the first value that fits again."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from whynan.fixes.diffs import DiffError, apply_diff, read_diff
from whynan.fixes.python.candidates import Spot, build_candidate, spot_of, traceable_definition
from whynan.fixes.python.edit import Edited, Editor
from whynan.fixes.python.write import ATOM, UnwritableError, binding
from whynan.ops.signatures import CASTS
from whynan.ops.table import TORCH
from whynan.source.calls import operator_of
from whynan.source.text import Place, apply_edits, is_python, place_of, shortened

if TYPE_CHECKING:
    from whynan.fixes.candidates import Candidate
    from whynan.fixes.python.edit import Root
    from whynan.fixes.python.formula import Edit
    from whynan.records import Finding, Site
    from whynan.source.dataflow import Definition

HALVES: Final = ("float16", "bfloat16")
_MOST_STATEMENTS: Final = 5
"""So many statements may lead from a birth to a value that fits."""
_MOST_SIBLINGS: Final = 8
_MOST_ABOVE: Final = 3
"""So many statements back is made what a birth reads."""
_OF_THE_KIND: Final = frozenset({"dtype", "shape", "device", "ndim", "layout", "grad", "data", "is_cuda"})
"""Attributes that a value in float32 need not have another one for, or must not."""


@dataclass(frozen=True, slots=True)
class Known:
    """What was seen of an expression when the function came to a line: its dtype, and whether it held NaN or Inf."""

    dtype: str
    bad: bool


Values = Callable[[int], Mapping[str, Known]]
"""What is known at a line, by the text of each expression."""


def nothing_known(line: int) -> Mapping[str, Known]:
    """What is known where the program was run once."""
    del line
    return {}


@dataclass(frozen=True, slots=True)
class _Way:
    """An expression that a birth leads to, and the names on the way, each with what it is given."""

    end: ast.expr
    definitions: tuple[Definition, ...] = ()
    leaves: bool = False
    """Whether the function returns it."""


def float32_candidates(text: str, finding: Finding, births: Iterable[Site], values: Values) -> Iterator[Candidate]:
    """Edits that compute the birth of a half format in float32, the smallest first.

    First the birth as it is, outside autocast, where that casts its operands. Each other begins with the operands of
    the birth, and of the other ``births`` on its way, with all that the statements of these read, or with all that
    those read which have made this; and ends with a cast back: around the birth, around what that is part of, or in a
    later statement. Last, with none: what the function returns. Where no value is known, those alone that end with an
    operation after which a number beyond the range fits again as a rule.
    """
    spot = spot_of(text, finding)
    if isinstance(spot, str) or finding.element.dtype not in HALVES or not _is_operation(spot):
        return
    ways = [way for way in _ways(spot) if values is not nothing_known or _compresses(spot, way.end)]
    nodes = {node for site in births if (node := spot.place.node_of(site)) is not None} | {spot.birth}
    if values is not nothing_known:
        for way in ways:
            with suppress(UnwritableError):
                made = _Piece(spot, finding, way, values, nodes).uncast()
                yield from () if (apart := outside_autocast(text, finding, made)) is None else (apart,)
    known = {text}
    depths = range(1 if values is nothing_known else _MOST_ABOVE + 1)
    for cast_back, above, everything, way in itertools.product((True, False), depths, (False, True), ways):
        if (not cast_back and not way.leaves) or (above and not everything):
            continue
        with suppress(UnwritableError):
            piece = _Piece(spot, finding, way, values, nodes, above)
            made = piece.candidate(everything=everything, cast_back=cast_back)
            if made.edited not in known:
                known.add(made.edited)
                yield made


def _compresses(spot: Spot, end: ast.expr) -> bool:
    """Whether an operation makes a number that fits of one that is too large, as a quotient, a mean, a logarithm."""
    if isinstance(end, ast.Call):
        return operator_of(spot.place, end)[0] in TORCH.having("compressing")
    return isinstance(end, ast.BinOp) and isinstance(end.op, ast.Div)


def _is_operation(spot: Spot) -> bool:
    """Whether the birth's expression is an operation of PyTorch's that gives a value."""
    if isinstance(spot.birth, ast.Call):
        name, in_place = operator_of(spot.place, spot.birth)
        return name is not None and not in_place
    return isinstance(spot.birth, (ast.BinOp, ast.UnaryOp))


def _ways(spot: Spot) -> Iterator[_Way]:
    """What a birth leads to: the expressions around it, then those of the one statement that reads its name, and on."""
    place, node = spot.place, spot.birth
    names: tuple[Definition, ...] = ()
    assert isinstance(node, ast.expr)
    for _ in range(_MOST_STATEMENTS):
        for end in _around(spot, node):
            yield _Way(end, names)
            node = end
        statement = place.statement(node)
        if isinstance(statement, ast.Return) and statement.value is node:
            yield _Way(node, names, leaves=True)
        made = [d for d in spot.reader.reaching.definitions() if d.value is node and isinstance(d.node, ast.Name)]
        readers = spot.reader.reaching.readers_of(node)
        if len(made) != 1 or not readers:
            return
        names, node = (*names, made[0]), readers[0]


def _readers(spot: Spot, definition: Definition) -> list[ast.AST]:
    """Where what a definition gives a name may be read."""
    return [node for node, found in spot.reader.reaching.at.items() if definition in found]


def _around(spot: Spot, node: ast.expr) -> Iterator[ast.expr]:
    """An expression, where it is more than a name, and those around it that are made of PyTorch's operators."""
    place = spot.place
    if not isinstance(node, (ast.Name, ast.Attribute)):
        yield node
    child: ast.AST = node
    for parent in place.above(node):
        if isinstance(parent, ast.Call):
            name, in_place = operator_of(place, parent)
            if in_place or (name is None and parent.func is not child):
                return
            if name is not None:
                yield parent
        elif isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.Subscript)):
            if isinstance(parent, ast.Subscript) and parent.slice is child:
                return
            yield parent
        elif not isinstance(parent, ast.Attribute):
            return
        child = parent


class _Piece:
    """One way in float32: which of its operands are cast, and where it is cast back.

    ``above``: so many statements back that have made what is read are in float32, too.
    """

    def __init__(
        self, spot: Spot, finding: Finding, way: _Way, values: Values, births: set[Root], above: int = 0
    ) -> None:
        self._spot, self._place, self._reader = spot, spot.place, spot.reader
        self._way = way
        self._values = values
        self._births = births
        self._above = above
        self._given = {o.expression: o.dtype for o in finding.element.operands if o.expression is not None}
        self._dtype = finding.element.dtype

    def candidate(self, *, everything: bool, cast_back: bool) -> Candidate:
        """The edit; raises ``UnwritableError`` where it cannot be written."""
        end = self._way.end
        siblings = self._siblings()
        own: list[ast.AST | None] = [*(d.value for d in self._way.definitions), end]
        definitions = (*self._way.definitions, *siblings)
        made = {*definitions}
        pieces = {*own, *(d.value for d in siblings)}
        readers = [node for definition in definitions for node in _readers(self._spot, definition)]
        if any(node is not end and pieces.isdisjoint((node, *self._place.above(node))) for node in readers):
            raise UnwritableError("what would be float32 is read elsewhere, too")
        cast: list[ast.expr] = []
        for piece in (*own, *(d.value for d in siblings)):
            if not isinstance(piece, ast.expr):
                continue
            births = [birth for birth in self._births if piece is birth or piece in self._place.above(birth)]
            if births and not everything:
                cast += [operand for birth in births for operand in self._operands(birth)]
            elif everything or piece not in own:
                cast += self._leaves(piece, made)
        if not cast:
            raise UnwritableError("nothing that it reads is known to be of a half format")
        cast = sorted(dict.fromkeys(cast), key=self._place.span)
        imports: set[str] = set()
        edits = self._edits(cast, end if cast_back else None, imports)
        title = f"float32 for {shortened(self._place.code(self._spot.birth))}"
        title = title if cast_back else f"{title}, and for what is returned"
        edited = Edited(end, edits, imports)
        found = build_candidate(self._spot, title, "reformulation", end, definitions, edits, imports, [edited])
        return found if cast_back else replace(found, widens=True)

    def uncast(self) -> Candidate:
        """What autocast casts to a half format as it was, and what is of one in float32 beside it.

        Raises ``UnwritableError`` where nothing is in float32.
        """
        births = [b for b in self._births if self._way.end is b or self._way.end in self._place.above(b)]
        births += [b for b in self._births if any(b is d.value for d in self._way.definitions)]
        single = [operand for birth in births for operand in _parts(birth) if self._is_single(operand)]
        if not single:
            raise UnwritableError("nothing that it reads is known to be in float32")
        half = [operand for birth in births for operand in self._operands(birth) if operand not in single]
        ran = self._with_calls(single, f".to({self._written})")
        if half:
            return replace(self._with_calls(half, ".float()"), original=ran.repaired, widens=True)
        return replace(ran, original=ran.repaired, repaired=ran.original, edited=self._place.text, widens=True)

    def _with_calls(self, operands: list[ast.expr], call: str) -> Candidate:
        """The way with a call behind each of some operands."""
        imports: set[str] = set()
        edits = self._edits(sorted(dict.fromkeys(operands), key=self._place.span), None, imports, call)
        title = f"{shortened(self._place.code(self._spot.birth))} in float32"
        end, edited = self._way.end, Edited(self._way.end, edits, imports)
        return build_candidate(self._spot, title, "reformulation", end, self._way.definitions, edits, imports, [edited])

    # -- what is read on the way

    def _siblings(self) -> list[Definition]:
        """What else is bad on the way, and made of what the function has: other births of the same cause."""
        found: list[Definition] = []
        waiting: list[ast.AST] = [self._way.end, *(d.value for d in self._way.definitions if d.value is not None)]
        while waiting and len(found) < _MOST_SIBLINGS:
            piece = waiting.pop()
            known = self._values(self._place.statement(self._way.end).lineno)
            for name in ast.walk(piece):
                if not isinstance(name, ast.Name) or not (name.id in known and known[name.id].bad):
                    continue
                made = traceable_definition(self._reader, self._way.end, name)
                if made is not None and made.value is not None and made not in (*self._way.definitions, *found):
                    found.append(made)
                    waiting.append(made.value)
        pieces: set[ast.AST] = {self._way.end, *(d.value for d in (*self._way.definitions, *found) if d.value)}
        for _ in range(self._above):
            makers = [d for d in self._makers(pieces) if d not in (*self._way.definitions, *found)]
            if not makers:
                raise UnwritableError("nothing else of the function has made what it reads")
            found += makers
            pieces |= {d.value for d in makers if d.value}
        return found

    def _makers(self, pieces: set[ast.AST]) -> list[Definition]:
        """What has made the tensors of a half format that some expressions read, and nothing else reads."""
        names = (name for piece in pieces for name in ast.walk(piece))
        halves = (name for name in names if isinstance(name, ast.Name) and self._is_half(name))
        end = self._way.end
        makers = dict.fromkeys(traceable_definition(self._reader, end, name, products=True) for name in halves)
        return [
            made
            for made in makers
            if made is not None
            and all(not pieces.isdisjoint((r, *self._place.above(r))) for r in _readers(self._spot, made))
        ]

    def _is_half(self, node: ast.expr) -> bool | None:
        """Whether an expression is a tensor of a half format; None where that is not known."""
        text = ast.unparse(node)
        if text in self._given:
            return self._given[text] in HALVES
        known = self._values(self._place.statement(node).lineno).get(text)
        return None if known is None else known.dtype in HALVES

    def _is_single(self, operand: ast.expr) -> bool:
        """Whether an operand is made of float32 alone, whatever the operation itself was given."""
        known = self._values(self._place.statement(operand).lineno)
        return {known[text].dtype for n in ast.walk(operand) if (text := getattr(n, "id", "")) in known} == {"float32"}

    def _operands(self, birth: ast.AST) -> list[ast.expr]:
        """The operands of an operation that are of a half format."""
        found: list[ast.expr] = []
        for operand in _parts(birth):
            half = self._is_half(operand)
            if half or (
                half is None and isinstance(operand, (ast.BinOp, ast.UnaryOp)) and self._leaves(operand, set())
            ):
                found.append(operand)
            elif half is None and isinstance(operand, (ast.List, ast.Tuple)):
                found += self._operands(operand)
            elif half is None and isinstance(operand, ast.Call) and operator_of(self._place, operand)[0] is not None:
                found += [operand] if self._leaves(operand, set()) else []
        return found

    def _leaves(self, node: ast.expr, made: set[Definition]) -> list[ast.expr]:
        """What an expression is made of that is of a half format; not the names that are ``made`` on the way."""
        if isinstance(node, ast.Name) and self._reader.reaching.single_definition(node) in made:
            return []
        if isinstance(node, ast.Attribute) and node.attr in _OF_THE_KIND:
            return []
        if isinstance(node, ast.Call):
            name, in_place = operator_of(self._place, node)
            if in_place:
                raise UnwritableError(f"{shortened(self._place.code(node))} writes in place")
            if isinstance(node.func, ast.Attribute) and node.func.attr in CASTS:
                return []
            if name is None:
                return [node] if self._is_half(node) else []
        elif not isinstance(node, (ast.BinOp, ast.UnaryOp)) and self._is_half(node):
            return [node]
        return [leaf for part in _parts(node) for leaf in self._leaves(part, made)]

    # -- as text

    @property
    def _written(self) -> str:
        """The half format, as it is written."""
        return f"{Editor(self._reader).writer(self._way.end).torch()}.{self._dtype}"

    def _edits(
        self, cast: list[ast.expr], end: ast.expr | None, imports: set[str], call: str = ".float()"
    ) -> list[Edit]:
        """The edits that cast some expressions, and another one back."""
        place, writer = self._place, Editor(self._reader).writer(self._way.end)
        opened: dict[int, str] = {}
        closed: dict[int, str] = {}
        back = [] if end is None else [(end, f".to({self._kind(cast, end) or self._written})")]
        imports |= writer.imports
        for node, call in [*((one, call) for one in cast), *back]:
            start, stop = place.span(node)
            if not place.is_whole(node):
                raise UnwritableError("the position of the expression in its string is not known")
            grouped = place.text[start - 1 : start] == "(" and place.text[stop : stop + 1] == ")" and node is not end
            parent = place.parents[node]
            if grouped and not (isinstance(parent, ast.Call) and node in parent.args):
                stop += 1
            elif binding(place.code(node)) < ATOM:
                opened[start] = opened.get(start, "") + "("
                call = f"){call}"
            closed[stop] = closed.get(stop, "") + call
        return sorted((at, at, closed.get(at, "") + opened.get(at, "")) for at in {*opened, *closed})

    def _kind(self, cast: list[ast.expr], end: ast.expr) -> str | None:
        """The dtype to cast back to, as that of something that can be read at the end and is not cast itself."""
        statement = self._place.statement(end)
        for name in (n for one in cast for n in ast.walk(one) if isinstance(n, ast.Name)):
            now = self._reader.reaching.definitions_before(statement, name.id)
            if self._is_half(name) and now == self._reader.reaching.definitions_at(name):
                return f"{name.id}.dtype"
        return None


def _parts(node: ast.AST) -> list[ast.expr]:
    """What an operation reads."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Call(func=callee, args=args, keywords=keywords):
            receiver = [callee.value] if isinstance(callee, ast.Attribute) else []
            return [*receiver, *args, *(keyword.value for keyword in keywords)]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return parts
        case ast.Subscript(value=value) | ast.Attribute(value=value):
            return [value]
        case _:
            return []


def outside_autocast(text: str, finding: Finding, made: Candidate) -> Candidate | None:
    """An edit whose birth's statement is not under autocast, which would compute it in a half format all the same."""
    edited = _uncast_statement(text, finding, made.edited)
    return None if edited is None else replace(made, edited=edited, title=f"{made.title}, outside autocast")


def call_outside_autocast(text: str, finding: Finding) -> tuple[str, str] | None:
    """What is done, and a text in which the statement that calls a layer, or the like, is not under autocast.

    What the call is given is cast to float32, which the layer's own weights are.
    """
    spot = spot_of(text, finding)
    call = None if isinstance(spot, str) else spot.birth
    if isinstance(spot, str) or not isinstance(call, ast.Call) or finding.element.dtype not in HALVES:
        return None
    given = [node for node in call.args if isinstance(node, (ast.Name, ast.Attribute))]
    if operator_of(spot.place, call)[0] is not None or call.keywords or not given or len(given) != len(call.args):
        return None
    edits = [(stop, stop, ".float()") for _, stop in map(spot.place.span, given)]
    edited = _uncast_statement(text, finding, apply_edits(text, edits), spot.place.code(given[0]))
    title = f"{shortened(spot.place.code(call))} in float32, outside autocast"
    return None if edited is None else (title, edited)


def _uncast_statement(text: str, finding: Finding, edited: str, tensor: str | None = None) -> str | None:
    """An edited text with the statement of the birth outside autocast, on the device of a tensor."""
    spot = spot_of(text, finding)
    if isinstance(spot, str) or text.count("\n") != edited.count("\n"):
        return None
    place, statement = spot.place, spot.place.statement(spot.birth)
    names = [n.id for n in ast.walk(spot.birth) if isinstance(n, ast.Name) and n.id not in {*place.imports, "self"}]
    writer = Editor(spot.reader).writer(spot.birth)
    torch, start = writer.torch(), place.span(statement)[0] - place.line_start(statement.lineno)
    indent = place.lines[statement.lineno - 1][:start]
    is_plain = (
        isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Return)) and statement.lineno == statement.end_lineno
    )
    tensor = tensor or next(iter(names), None)
    if tensor is None or writer.imports or not is_plain or indent.strip():
        return None
    lines = edited.splitlines(keepends=True)
    line = lines[statement.lineno - 1]
    end = "\r\n" if line.endswith("\r\n") else "\n"
    header = f"{indent}with {torch}.autocast({tensor}.device.type, enabled=False):{end}"
    lines[statement.lineno - 1] = f"{header}{indent}    {line[len(indent) :]}"
    uncast = "".join(lines)
    return uncast if is_python(uncast) else None


# -- A whole program in another format, which has the range of float32 -----------------------------------------------


def in_format(text: str, method: str, dtype: str) -> str | None:
    """A file's text with another dtype, and its method, wherever it asks for float16; None where it does not."""
    place = place_of(text)
    edits: list[Edit] = []
    for node in place.parents:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            called = place.parents[node]
            is_half = node.attr == "half" and isinstance(called, ast.Call) and called.func is node and not called.args
            is_compared = any(isinstance(above, ast.Compare) for above in place.above(node))
            if is_half or (not is_compared and place.meaning(node) in (["torch", "float16"], ["torch", "half"])):
                stop = place.span(node)[1]
                edits.append((stop - len(node.attr), stop, method if is_half else dtype))
    return apply_edits(text, edits) if edits else None


# -- The edit of a report, made again ----------------------------------------------------------------------------------


def with_casts(text: str, change: str, site: Site) -> str | None:
    """A text with a change that only casts inside the function of a site; None for every other change."""
    try:
        edited = apply_diff(read_diff(change), text)
    except DiffError:
        return None
    before, after = Place(text), Place(edited)
    birth = before.node_of(site)
    if birth is None or before.tree is None or after.tree is None:
        return None
    function = before.function(birth)
    first, last = (0, len(before.lines)) if isinstance(function, ast.Module) else _lines(function)
    more = len(after.lines) - len(before.lines)
    bare = [
        ast.dump(_WithoutCasts(first, end).visit(tree))
        for tree, end in ((before.tree, last), (after.tree, last + more))
    ]
    return edited if bare[0] == bare[1] else None


def _lines(node: ast.stmt) -> tuple[int, int]:
    """The first and the last line of a statement."""
    return node.lineno, node.end_lineno or node.lineno


class _WithoutCasts(ast.NodeTransformer):
    """Takes out what casts between two lines to float32, a half format or the dtype of a name, and ends autocast."""

    def __init__(self, first: int, last: int) -> None:
        self._first, self._last = first, last

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="float"), args=[], keywords=[]):
                is_cast = True
            case ast.Call(
                func=ast.Attribute(value=value, attr="to"),
                args=[ast.Attribute(value=ast.Name(), attr=dtype)],
                keywords=[],
            ):
                is_cast = dtype in ("dtype", *HALVES)
            case _:
                return node
        return value if is_cast and self._first <= node.lineno <= self._last else node

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        match node.items:
            case [
                ast.withitem(
                    context_expr=ast.Call(
                        func=ast.Attribute(value=ast.Name(), attr="autocast"),
                        args=[ast.Attribute(value=ast.Attribute(value=ast.Name(), attr="device"), attr="type")],
                        keywords=[ast.keyword(arg="enabled", value=ast.Constant(value=False))],
                    ),
                    optional_vars=None,
                )
            ] if self._first <= node.lineno <= self._last:
                return node.body
            case _:
                return node
