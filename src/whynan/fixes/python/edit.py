"""A match as edits of the text, at the place or on a line of its own above the statement."""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.expr.term import Term
from whynan.fixes.python.formula import Edit, assignment_source
from whynan.fixes.python.imports import visible
from whynan.fixes.python.repeated_parts import extract_repeated_parts, names_of, with_constants
from whynan.fixes.python.write import ATOM, Naming, UnwritableError, Writer, Written
from whynan.source.calls import operator_of
from whynan.source.dataflow import is_temporary
from whynan.source.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from whynan.expr.from_python import Reader
    from whynan.expr.match import Match
    from whynan.records.intents import FixIntent
    from whynan.source.text import Place


# -- Whether a part of an expression may be computed on a line of its own above the statement --------------------------


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
_PURE: Final = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.keyword)
_DOING: Final = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


@dataclass
class Edited:
    """The edits of one match, and what they need: modules to import, and lines above the statement of the root."""

    root: Root
    edits: list[Edit] = field(default_factory=list[Edit])
    imports: set[str] = field(default_factory=set[str])
    rewritten: str | None = None
    above: Lines = ()


def hoist_obstacle(reader: Reader, root: Root, moved: Sequence[ast.AST]) -> str | None:
    """Why expressions of a root, ``moved``, cannot be evaluated before the statement that it is in; None if they can.

    They must be evaluated there anyway, once, and nothing that does more than compute may come before them that came
    after them, or the other way round.
    """
    place = reader.place
    if not _starts_line(place, place.statement(root)) or isinstance(place.scope(root), (ast.ClassDef, ast.Lambda)):
        return "there is no line above it"
    if place.is_deferred(root) or not _is_always_evaluated(place, root):
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
        edits.append((start, start, "".join(f"{assignment_source(*line)}{end}{indent}" for line in own)))
    return edits


def _line_start(place: Place, offset: int) -> int:
    return max(place.text.rfind("\n", 0, offset), place.text.rfind("\r", 0, offset)) + 1


def _starts_line(place: Place, statement: ast.stmt) -> bool:
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
    doing = [n for n in ast.walk(top) if n not in around and _has_side_effects(reader, n) and _start(place, n) < end]
    if any(isinstance(n, ast.Call) and operator_of(place, n)[1] for n in doing):
        return False
    first = list(dict.fromkeys(_enclosing_part(place, moved, node) for node in doing))
    if not first:
        return True
    held = first[0]
    return (
        len(first) == 1 and held is not None and all(_is_read(place, n) for n in _evaluated_earlier(place, top, held))
    )


def _has_side_effects(reader: Reader, node: ast.AST) -> bool:
    """Whether a node may do more than compute a value."""
    return isinstance(node, _DOING) or (isinstance(node, ast.Call) and not reader.is_pure_call(node))


def _start(place: Place, node: ast.AST) -> int:
    return place.span(node)[0] if isinstance(node, ast.expr) else -1


def _enclosing_part(place: Place, moved: Sequence[ast.AST], node: ast.AST) -> ast.AST | None:
    """The part that is moved which a node is in."""
    above = {node, *place.above(node)}
    return next((part for part in moved if part in above), None)


def _evaluated_earlier(place: Place, top: ast.AST, held: ast.AST) -> list[ast.AST]:
    """What is evaluated before a part of an expression."""
    around = {held, *place.above(held)}
    start = _start(place, held)
    return [n for n in ast.walk(top) if n not in around and isinstance(n, ast.expr) and place.span(n)[0] < start]


def _is_read(place: Place, node: ast.AST) -> bool:
    """Whether an expression is a name, a number, or what a module is imported for: no call can change it."""
    return isinstance(node, _PURE) or (isinstance(node, ast.Attribute) and place.meaning(node) is not None)


# -- One match as edits of the text: the smallest part of it that changes, written at the place where it is read -------


_BINDS: Final[dict[type[ast.operator], int]] = {
    ast.Add: 3,
    ast.Sub: 3,
    ast.Mult: 4,
    ast.Div: 4,
    ast.FloorDiv: 4,
    ast.Mod: 4,
    ast.MatMult: 4,
    ast.Pow: 6,
}


class _Obstacle(NamedTuple):
    """Why an expression cannot be read at another place; ``is_written``: what it reads has been changed by then."""

    says: str
    is_written: bool = False


def differing_parts(pattern: ast.expr, replacement: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The smallest parts in which a replacement differs from its pattern."""
    if ast.dump(pattern) == ast.dump(replacement):
        return []
    pairs: list[tuple[ast.expr, ast.expr]] = []
    match pattern, replacement:
        case (
            ast.Call(func=ast.Name(id=first), args=a, keywords=[]),
            ast.Call(func=ast.Name(id=second), args=b, keywords=[]),
        ):
            if first != second or len(a) != len(b):
                return [(pattern, replacement)]
            pairs = list(zip(a, b, strict=True))
        case ast.BinOp(left=l1, op=o1, right=r1), ast.BinOp(left=l2, op=o2, right=r2):
            if type(o1) is not type(o2):
                return [(pattern, replacement)]
            pairs = [(l1, l2), (r1, r2)]
        case ast.UnaryOp(op=o1, operand=v1), ast.UnaryOp(op=o2, operand=v2) if type(o1) is type(o2):
            pairs = [(v1, v2)]
        case _:
            return [(pattern, replacement)]
    return [found for first, second in pairs for found in differing_parts(first, second)]


class Editor:
    """Turns matches of one function's expressions into edits."""

    def __init__(self, reader: Reader, naming: Naming = "above", numbers: frozenset[str] = frozenset()) -> None:
        self._reader = reader
        self._numbers = numbers
        self._place = reader.place
        self._naming: Naming = naming

    def edit_match(self, root: Root, pattern: ast.expr, intent: FixIntent, match: Match) -> Edited:
        """The edits that put a replacement in place of a match; UnwritableError with the reason where none do."""
        found = Edited(root)
        writer = self.writer(root)
        replacement = writer.chosen_by_numbers(self._replacement(intent, match, writer), match)
        pairs = differing_parts(pattern, replacement)
        places = [self._editable_expression(root, match.places.get(part)) for part, _ in pairs]
        is_apart = bool(pairs) and pairs[0][0] is not pattern and all(place is not None for place in places)
        if is_apart and not self._repeats_calls(pattern, pairs, match, writer):
            counts = names_of([new for _, new in pairs], writer.lets)
            for node, (_, new) in zip(places, pairs, strict=True):
                if node is not None:
                    match = self._readable_match(root, new, match, writer, found)
                    found.edits.append(self.replacement_edit(node, writer.replacement(new, match, counts)))
        else:
            counts = names_of([replacement], writer.lets)
            match = self._readable_match(root, replacement, match, writer, found)
            written = writer.with_surroundings(writer.replacement(replacement, match, counts), match)
            self._rewrite_root(root, written, writer, found)
        found.imports |= writer.imports
        self._hoist_above(root, writer, found)
        return found

    def _repeats_calls(
        self, pattern: ast.expr, pairs: Sequence[tuple[ast.expr, ast.expr]], match: Match, writer: Writer
    ) -> bool:
        """Whether what only some parts are replaced by reads a call again that stays where it was.

        Of what draws numbers or counts its calls it would be another one.
        """
        stays = names_of([pattern], {})
        stays.subtract(names_of([old for old, _ in pairs], {}))
        terms = [
            match.variables.get(name) for name in names_of([new for _, new in pairs], writer.lets) if stays[name] > 0
        ]
        leaves = [leaf for term in terms if isinstance(term, Term) for leaf in _leaves(term)]
        return not all(map(self._reader.is_pure, leaves))

    def _replacement(self, intent: FixIntent, match: Match, writer: Writer) -> ast.expr:
        """The replacement of an intent, with names for what it has more than once."""
        known = {n: v for n, v in match.variables.items() if isinstance(v, Term) and v.name == "constant" and v.node}
        constants = {name: ast.parse(value.text, mode="eval").body for name, value in known.items()}

        def read(text: str) -> ast.expr:
            return with_constants(ast.parse(text, mode="eval").body, constants)

        tree = read(intent.replacement)
        if self._naming == "nowhere":
            return tree
        names = [(name, read(text)) for name, text in intent.names]
        writer.called |= {part.id: name for name, part in names if isinstance(part, ast.Name)}
        tree, writer.lets = extract_repeated_parts(tree, names, every=self._naming == "above")
        return tree

    def _hoist_above(self, root: Root, writer: Writer, found: Edited) -> None:
        if writer.above:
            moved = [leaf for term in writer.moved for leaf in _leaves(term)]
            reason = hoist_obstacle(self._reader, root, moved)
            if reason is not None:
                raise UnwritableError(reason)
            found.above = tuple(writer.above)

    def writer(self, root: Root) -> Writer:
        """A writer in the style of the source around a place."""
        return Writer(self._place, self._in_methods(root), visible(self._place, root), self._naming, self._numbers)

    def _in_methods(self, root: Root) -> bool:
        if self._place.library != "torch":
            return False
        for node in ast.walk(root):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                return self._place.meaning(node.func) is None
        return False

    def _editable_expression(self, root: Root, term: Term | None) -> ast.expr | None:
        """The expression of a term, where it stands in the root and may be changed there."""
        node = term.node if term is not None else None
        if not isinstance(node, ast.expr) or node is root or root not in self._place.above(node):
            return None
        if not self._place.is_whole(node) or (isinstance(root, ast.AugAssign) and node is root.target):
            return None
        parent = self._place.parents[node]
        above = self._place.parents.get(parent)
        if isinstance(parent, ast.Attribute) and isinstance(above, ast.Call) and operator_of(self._place, above)[1]:
            return None  # what is written into would be a temporary
        return node

    # -- what the replacement reads, read at another place

    def _readable_match(self, root: Root, replacement: ast.expr, match: Match, writer: Writer, found: Edited) -> Match:
        """The match with each variable as something that can be read at the root."""
        variables = dict(match.variables)
        for name in sorted(names_of([replacement], writer.lets)):
            value = variables.get(name)
            if not isinstance(value, Term):
                continue
            readable = self._readable(value, root)
            if readable is None:
                self._hoist(name, value, writer, found, self._term_obstacle(value, root) or _Obstacle(""))
            else:
                variables[name] = readable
        for term in (*match.factors, *match.terms):
            reason = self._term_obstacle(term, root)
            if reason is not None:
                raise UnwritableError(reason.says)
        return replace(match, variables=variables)

    def _readable(self, term: Term, root: Root) -> Term | None:
        """The term, or what its names were made of, as far as that is still the same at the root."""
        if self._term_obstacle(term, root) is None:
            return term
        if term.name == "leaf":
            made = self._reader.expand(term)
            return None if made is None else self._readable(made, root)
        children: list[tuple[str, Term]] = []
        for parameter, child in term.children:
            found = self._readable(child, root)
            if found is None:
                return None
            children.append((parameter, found))
        origin = children[0][1] if term.origin is not None else None
        return replace(term, node=None, children=tuple(children), origin=origin)

    def _term_obstacle(self, term: Term, root: Root) -> _Obstacle | None:
        return next((reason for leaf in _leaves(term) if (reason := self._leaf_obstacle(leaf, root))), None)

    def _leaf_obstacle(self, leaf: ast.AST, root: Root) -> _Obstacle | None:
        """Why an expression cannot be read at the root, if it stands elsewhere."""
        if leaf is root or root in self._place.above(leaf):
            return None
        statement = self._place.statement(root)
        for node in ast.walk(leaf):
            if isinstance(node, ast.Name):
                if self._is_global(node, statement):
                    continue
                then, now = (
                    self._reader.reaching.definitions_at(node),
                    self._reader.reaching.definitions_before(statement, node.id),
                )
                if then != now:
                    written = any(d.written for d in now)
                    done = "written into" if written else "assigned"
                    return _Obstacle(f"{node.id} is {done} before it would be read", written)
        if not self._reader.is_pure(leaf):
            return _Obstacle(f"{shortened(ast.unparse(leaf))} would be evaluated twice")
        return None

    def _is_global(self, node: ast.Name, statement: ast.stmt) -> bool:
        """Whether a name in another function of the file is one of the module there and here."""
        if self._place.function(node) is self._reader.reaching.function:
            return False
        return all(d.node is None for d in self._reader.reaching.definitions_before(statement, node.id))

    def _hoist(self, name: str, value: Term, writer: Writer, found: Edited, reason: _Obstacle) -> None:
        """Give the operand a name where it is computed."""
        node = value.node
        if not isinstance(node, ast.expr) or reason.is_written or self._place.is_deferred(node):
            raise UnwritableError(reason.says)
        scope = self._place.scope(node)
        if scope is not self._place.scope(found.root) or not self._place.is_whole(node):
            raise UnwritableError(reason.says)
        own = writer.fresh(name)
        writer.names[name] = own
        text = f"{own} := {self._place.code(node)}"
        parent = self._place.parents[node]
        bare = isinstance(parent, ast.Call) and node in parent.args
        found.edits.append((*self._place.span(node), text if bare else f"({text})"))

    # -- in place of the root

    def _rewrite_root(self, root: Root, written: Written, writer: Writer, found: Edited) -> None:
        found.rewritten = written.text
        if isinstance(root, ast.AugAssign):
            self._check_unshared(root.target)
            found.edits.append((*self._place.span(root), f"{self._place.code(root.target)} = {written.text}"))
            return
        if not self._place.is_whole(root):
            raise UnwritableError("the position of the expression in its string is not known")
        kept = "\n".join([*(text for _, text in writer.above), found.rewritten])
        for inner in ast.walk(root):
            if isinstance(inner, ast.NamedExpr) and self._place.code(inner) not in kept and self._is_read(inner):
                raise UnwritableError(f"{inner.target.id} is assigned in it")
        if isinstance(root, ast.Call) and operator_of(self._place, root)[1]:
            self._rewrite_in_place(root, written, found)
            return
        self._check_kept(root, kept)
        found.edits.append(self.replacement_edit(root, written))

    def _is_read(self, walrus: ast.NamedExpr) -> bool:
        """Whether the name that a walrus gives is read anywhere, or may be."""
        reaching = self._reader.reaching
        loads = [n for n, found in reaching.at.items() if any(d.node is walrus.target for d in found)]
        return bool(loads) or walrus.target.id in reaching.uncertain or isinstance(reaching.function, ast.Module)

    def _check_kept(self, root: Root, kept: str) -> None:
        for inner in ast.walk(root):
            if (
                isinstance(inner, ast.Call)
                and operator_of(self._place, inner)[1]
                and self._place.code(inner) not in kept
            ):
                raise UnwritableError("what it writes in place is read elsewhere")

    def _rewrite_in_place(self, root: ast.Call, written: Written, found: Edited) -> None:
        receiver = root.func.value if isinstance(root.func, ast.Attribute) else None
        if self._place.meaning(root.func) is not None:
            receiver = root.args[0] if root.args else None
        statement = self._place.statement(root)
        if receiver is not None and is_temporary(receiver):
            # of the call's own result another object is as good
            found.edits.append(self.replacement_edit(root, written))
            return
        self._check_unshared(receiver)
        if isinstance(statement, ast.Expr) and statement.value is root and isinstance(receiver, ast.Name):
            found.edits.append((*self._place.span(root), f"{receiver.id} = {written.text}"))
        elif isinstance(statement, ast.Return):
            found.edits.append(self.replacement_edit(root, written))
        else:
            raise UnwritableError("its result is written into its operand, which may be read elsewhere")

    def _check_unshared(self, receiver: ast.expr | None) -> None:
        """Only the value of a local name that nothing else holds can be another object instead."""
        if not isinstance(receiver, ast.Name):
            raise UnwritableError("its result is written into what other names may hold")
        reaching = self._reader.reaching
        if not reaching.is_own(receiver):
            raise UnwritableError(f"{receiver.id} is written into, and other names may hold it")

    def replacement_edit(self, node: ast.expr, written: Written) -> Edit:
        """An expression written anew, in parentheses only where its surroundings need them."""
        start, end = self._place.span(node)
        text = self._place.text
        needed = self._required_binding(node)
        before, after = start - 1, end
        wrapped = before >= 0 and text[before] == "(" and after < len(text) and text[after] == ")"
        parent = self._place.parents[node]
        if wrapped and not isinstance(parent, (ast.Call, ast.FunctionDef, ast.ClassDef)) and not _is_call(text, before):
            if written.binds >= needed and written.binds >= ATOM and "\n" not in written.text:
                return before, after + 1, written.text
            return start, end, written.text
        if "\n" in written.text and written.binds < ATOM and isinstance(parent, ast.stmt):
            return start, end, f"({written.text})"
        return start, end, written.within(needed)

    def _required_binding(self, node: ast.expr) -> int:
        match self._place.parents[node]:
            case ast.BinOp(left=left, op=symbol):
                binds = _BINDS.get(type(symbol), ATOM)
                return binds + (node is not left or isinstance(symbol, ast.Pow))
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
                return 1
            case ast.UnaryOp():
                return 5
            case ast.Compare():
                return 3
            case ast.Attribute() | ast.Subscript() | ast.Await():
                return ATOM if self._is_receiver(node) else 0
            case ast.Call(func=callee) if callee is node:
                return ATOM
            case _:
                return 0

    def _is_receiver(self, node: ast.expr) -> bool:
        parent = self._place.parents[node]
        return not (isinstance(parent, ast.Subscript) and parent.slice is node)


def _is_call(text: str, parenthesis: int) -> bool:
    """Whether a parenthesis is that of a call."""
    return parenthesis > 0 and (text[parenthesis - 1].isalnum() or text[parenthesis - 1] in "_)]")


def _leaves(term: Term) -> Iterator[ast.AST]:
    """The expressions that the text of a term is made of."""
    if term.node is not None:
        yield term.node
    else:
        for child in term.operands:
            yield from _leaves(child.origin or child)
