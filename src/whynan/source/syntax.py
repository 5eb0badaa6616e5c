"""The syntax of a source file: which node stands at a span, and its text."""

from __future__ import annotations

import ast
import io
import linecache
import re
import tokenize
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

CONVENTIONAL: Final = {"torch": "torch", "F": "torch.nn.functional", "nn": "torch.nn"}
"""What these names stand for where a file neither imports nor assigns them: a notebook's cell."""
Spanned = ast.expr | ast.stmt
"""A node that has a place in the source and that an instruction may stand for."""

_NAMING: Final = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar),
)
_NEWLINE: Final = re.compile(r"[ \t\f]*\\?\n\s*")
_MOST_FILES: Final = 512


class Span(NamedTuple):
    """A range as ``code.co_positions()`` gives it: lines from 1, columns in UTF-8 bytes from 0, end exclusive."""

    line: int
    end_line: int
    column: int
    end_column: int


def imported_by(node: ast.AST) -> dict[str, str]:
    """What the names that a statement imports stand for; none of what is no import."""
    match node:
        case ast.Import(names=names):
            return {
                n.asname or n.name.partition(".")[0]: n.name if n.asname else n.name.partition(".")[0] for n in names
            }
        case ast.ImportFrom(module=module, names=names, level=level):
            return {n.asname or n.name: f"{'.' * level + (module or '')}.{n.name}" for n in names}
        case _:
            return {}


def dotted(node: ast.AST) -> list[str] | None:
    """``a.b.c`` as its names; None for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else None


def span_of(node: Spanned) -> Span:
    """Where a node stands; a node that `ast` parsed has an end."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return Span(node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


class Syntax:
    """The lines of one file, and what they parse to."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    @cached_property
    def tree(self) -> ast.Module | None:
        """The parsed file; None where it is not Python."""
        try:
            with warnings.catch_warnings():  # the program's own invalid escapes were reported when it was compiled
                warnings.simplefilter("ignore")
                return ast.parse("".join(self.lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node that each node is directly part of."""
        nodes: Iterator[ast.AST] = ast.walk(self.tree) if self.tree is not None else iter(())
        return {child: node for node in nodes for child in ast.iter_child_nodes(node)}

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """A node's ancestors, the nearest first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node is part of, or is."""
        if isinstance(node, ast.stmt):
            return node
        return next(parent for parent in self.above(node) if isinstance(parent, ast.stmt))

    @cached_property
    def imports(self) -> dict[str, str]:
        """What each imported name stands for, as ``F`` for ``torch.nn.functional``; dots begin a relative import."""
        found: dict[str, str] = {}
        for node in self.parents:
            found |= imported_by(node)
        return found

    @cached_property
    def assigned_names(self) -> frozenset[str]:
        """Every name that the file gives a value to other than by an import, in whatever scope."""
        names: set[str] = set()
        for node in self.parents:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                names.add(node.id)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, _NAMING) and node.name is not None:
                names.add(node.name)
        return frozenset(names)

    @cached_property
    def _by_span(self) -> dict[Span, list[Spanned]]:
        found: dict[Span, list[Spanned]] = {}
        for node in self.parents:
            if isinstance(node, (ast.expr, ast.stmt)):
                found.setdefault(span_of(node), []).append(node)
        return found

    @cached_property
    def _by_attribute(self) -> dict[tuple[int, int], list[Spanned]]:
        # Where an attribute stands on a later line than its object, the compiler lets the access and the call of it
        # begin at the attribute's name (compile.c, update_start_location_to_match_attr; it counts the name in
        # characters).
        found: dict[tuple[int, int], list[Spanned]] = {}
        for node, parent in self.parents.items():
            if isinstance(node, ast.Attribute) and node.end_lineno != node.lineno:
                end = span_of(node)
                nodes = found.setdefault((end.end_line, end.end_column - len(node.attr)), [])
                nodes.append(node)
                if isinstance(parent, ast.Call) and parent.func is node:
                    nodes.append(parent)
        return found

    def node_at(self, span: Span, kinds: tuple[type[Spanned], ...]) -> Spanned | None:
        """The node that stands at a span, one of `kinds` before others; None where none does."""
        nodes = self._by_attribute.get((span.line, span.column)) or self._by_span.get(span)
        if not nodes:
            return None
        return next((node for node in nodes if isinstance(node, kinds)), nodes[0])

    def column(self, line: int, column: int) -> int | None:
        """The 1-based character column of a byte column; None where the line does not reach so far."""
        if not 1 <= line <= len(self.lines):
            return None
        encoded = self.lines[line - 1].rstrip("\r\n").encode("utf-8", "surrogatepass")
        if column > len(encoded):
            return None
        return len(encoded[:column].decode("utf-8", "replace")) + 1

    def meaning(self, node: ast.expr) -> list[str] | None:
        """What a dotted name stands for by the file's imports, as its parts; None for anything else."""
        names = dotted(node)
        if names is None or names[0] in self.assigned_names:
            return None
        root = self.imports.get(names[0], CONVENTIONAL.get(names[0]))
        return None if root is None else [*root.split("."), *names[1:]]

    def line_of(self, span: Span) -> str | None:
        """The source text of a span on one line; None where the file does not reach so far."""
        start, end = self.column(span.line, span.column), self.column(span.end_line, span.end_column)
        if start is None or end is None:
            return None
        rows = [line.rstrip("\r\n") for line in self.lines[span.line - 1 : span.end_line]]
        rows[-1] = rows[-1][: end - 1]
        rows[0] = rows[0][start - 1 :]
        return one_line("\n".join(rows))


def one_line(text: str) -> str:
    """Source text without comments, and with every line break and the indentation after it as one space."""
    return _NEWLINE.sub(" ", _without_comments(text)) if "\n" in text else text


def _without_comments(text: str) -> str:
    rows = text.split("\n")
    try:
        # in brackets, or the tokenizer would ask for indentation
        for token in tokenize.generate_tokens(io.StringIO(f"(\n{text}\n)").readline):
            if token.type == tokenize.COMMENT:
                row = token.start[0] - 2
                rows[row] = rows[row][: token.start[1]]
    except (tokenize.TokenError, SyntaxError):
        return text
    return "\n".join(rows)


_files: dict[str, Syntax] = {}


def lines_of(filename: str) -> list[str]:
    """The lines that `linecache` has of a file; none of a name that no file can have (a NUL, half a surrogate pair)."""
    try:
        return linecache.getlines(filename)
    except ValueError:
        return []


def syntax_of(filename: str) -> Syntax:
    """The syntax of a file as `linecache` has it: the file, a notebook's cell, whatever registered itself there.

    Parsed once, and again when `linecache` holds other lines.
    """
    lines = lines_of(filename)
    known = _files.get(filename)
    # linecache hands out the very list that it holds, so that the same list means an unchanged file
    if known is None or known.lines is not lines:
        if len(_files) >= _MOST_FILES:
            _files.clear()
        known = _files[filename] = Syntax(lines)
    return known


def method_of(code: str) -> str | None:
    """The name of the method that an expression calls; None where it is no call of one, or is no whole expression."""
    try:
        tree = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return tree.func.attr if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute) else None
