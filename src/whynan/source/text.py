"""The text of one source file, its syntax tree, and which characters each node of it stands at."""

from __future__ import annotations

import ast
import bisect
import functools
import re
import tokenize
import warnings
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from whynan.ops.table import TORCH
from whynan.source.syntax import Syntax, imported_by

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.records import Site

Function = ast.FunctionDef | ast.AsyncFunctionDef
Library = Literal["torch", "numpy"]
Scope = Function | ast.Lambda | ast.ClassDef | ast.Module
_LINES: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@functools.lru_cache(maxsize=64)
def is_python(text: str) -> bool:
    """Whether a file's text can be compiled."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<text>", "exec", dont_inherit=True)  # the symbol table refuses what the grammar lets through
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def parse_or_none(text: str) -> ast.Module | None:
    """The tree of a file's text, which is not to be changed; None where it is no Python."""
    return place_of(text).tree if is_python(text) else None


def file_text(path: str) -> str | None:
    """The text of a file of Python's, with its own line ends; None where it cannot be read."""
    try:
        with open(path, "rb") as raw:
            encoding, _ = tokenize.detect_encoding(raw.readline)
        with open(path, encoding=encoding, newline="") as file:
            return file.read()
    except (OSError, SyntaxError, UnicodeError):
        return None


class Place(Syntax):
    """A source file as text and tree; spans are character offsets into the text, end exclusive."""

    def __init__(self, text: str, *, library: Library = "torch") -> None:
        super().__init__(_LINES.findall(text))
        self.text = text
        self.library: Library = library
        """Whose functions are read as PyTorch's operators of the same name."""
        self.analyses: dict[ast.AST, object] = {}
        """What was found of its functions, which ends with it."""

    def meaning(self, node: ast.expr) -> list[str] | None:
        """What a dotted name stands for by the file's imports, the library read as torch; None for anything else."""
        names = super().meaning(node)
        return None if names is None else self.read_as(names)

    def read_as(self, names: list[str]) -> list[str] | None:
        """The parts of a full name, where the library's are torch's and torch's own are nobody's."""
        if self.library == "torch" or names[0] not in (self.library, "torch"):
            return names
        known = TORCH.names("numpy")
        return ["torch", *(known.get(name, name) for name in names[1:])] if names[0] == self.library else None

    @cached_property
    def importing(self) -> dict[str, list[ast.AST]]:
        """The statements that import each name."""
        found: dict[str, list[ast.AST]] = {}
        for node in self.parents:
            for name in imported_by(node):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        """Every identifier of the file that is not only an attribute's."""
        return frozenset(re.findall(r"(?<!\.)\b\w+", self.text))

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        return starts

    def lines_ahead(self, statement: ast.stmt, *lines: str) -> tuple[int, int, str] | None:
        """The edit that writes lines ahead of a statement, as far in as it is; None where it does not begin a line."""
        start = self.line_start(statement.lineno)
        indent = self.text[start : self.span(statement)[0]]
        newline = "\r\n" if "\r\n" in self.text else "\n"
        return None if indent.strip() else (start, start, "".join(f"{indent}{line}{newline}" for line in lines))

    def line_start(self, line: int) -> int:
        """The offset at which a line begins, from 1; the end of the text for the line after the last."""
        return self._starts[min(line, len(self._starts)) - 1]

    def position(self, offset: int) -> tuple[int, int]:
        """The line and the column of an offset, from 1, in characters."""
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def _offset(self, line: int, column: int) -> int:
        """The character offset of a byte column."""
        encoded = self.lines[line - 1].encode("utf-8", "surrogatepass")
        return self._starts[line - 1] + len(encoded[:column].decode("utf-8", "replace"))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node stands, without parentheses around it."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def code(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def is_whole(self, node: ast.expr) -> bool:
        """Whether the text at a node's span is the node: parts of an f-string have had wrong positions."""
        try:
            found = ast.parse(f"({self.code(node)}\n)", mode="eval").body
        except (SyntaxError, ValueError):
            return False
        return ast.unparse(found) == ast.unparse(node)

    def node_of(self, site: Site) -> ast.expr | ast.AugAssign | None:
        """The expression or augmented assignment at a site; None where none stands at exactly its columns."""
        if site.column is None or site.end_column is None or site.end_line is None:
            return None
        if not 1 <= site.line <= site.end_line < len(self._starts):
            return None
        wanted = (
            self._starts[site.line - 1] + site.column - 1,
            self._starts[site.end_line - 1] + site.end_column - 1,
        )
        found: ast.expr | ast.AugAssign | None = None
        for node in self.parents:
            if isinstance(node, (ast.expr, ast.AugAssign)) and node.lineno == site.line and self.span(node) == wanted:
                found = node
                if isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.AugAssign)):
                    return node
        return found

    def scope(self, node: ast.AST) -> Scope:
        """The function, class or module whose body a node is in."""
        child = node
        for parent in self.above(node):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if child in parent.body:
                    return parent
            elif isinstance(parent, ast.Lambda):
                if child is parent.body:
                    return parent
            elif isinstance(parent, ast.Module):
                return parent
            child = parent
        raise LookupError(ast.dump(node))

    def function(self, node: ast.AST) -> Function | ast.Module:
        """The function whose frame a node is executed in, lambdas and class bodies apart; else the module."""
        scope = self.scope(node)
        while not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            scope = self.scope(scope)
        return scope

    def qualified_name(self, node: Function | ast.Module) -> str | None:
        """The name of a function as a site has it (``Net.forward``); None of the module."""
        if isinstance(node, ast.Module):
            return None
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        outer = [parent.name for parent in self.above(node) if isinstance(parent, kinds)]
        return ".".join([*reversed(outer), node.name])

    def is_deferred(self, node: ast.AST) -> bool:
        """Whether an expression is not evaluated just where its statement is: in a lambda or a comprehension."""
        for parent in self.above(node):
            if isinstance(parent, ast.stmt):
                return False
            if isinstance(parent, (ast.Lambda, *_COMPREHENSIONS)):
                return True
        return False


def _common(one: str, other: str) -> int:
    """With how many characters both begin."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


_ENDED: Final = re.compile(r"[ \t]*(#.*)?(\r?\n|\Z)")
"""What follows a statement that is the last of its line."""


def changed_statements(place: Place, edited: str) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The statements of a file as it is and edited, without those at its top ahead of the edits and behind them.

    A file may have thousands of lines, and an edit a few: only what it may have changed is compared, or parsed again.
    """
    body, text = ([], "") if place.tree is None else (place.tree.body, place.text)
    ends = [place.span(statement)[1] for statement in body]
    first, last = _common(text, edited), _common(text[::-1], edited[::-1])
    begin = sum(end < first for end in ends)
    start, grown = ends[begin - 1] if begin else 0, len(edited) - len(text)
    for number, end in [*enumerate(ends[begin:], begin + 1), (len(body), len(text))]:
        if len(text) - end <= last and end + grown >= start and _ENDED.match(text, end):
            with suppress(SyntaxError):
                made = ast.parse(edited[start : end + grown])
                return _statements(body[begin:number]), _statements(made.body)
    return _statements(body), _statements(ast.parse(edited).body)


def _statements(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Statements, and all in them."""
    found, waiting = list[ast.stmt](), list[Any](body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            found.append(node)
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, name, ())
    return found


def own_names(function: Function | ast.Module) -> frozenset[str]:
    """What a function gives values itself: its parameters and what it assigns, those of lambdas in it included."""
    waiting, found = list(ast.iter_child_nodes(function)), set[str]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
    return frozenset(found)


def apply_edits(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """A text with some of its spans written anew; spans do not overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def shortened(text: str, most: int = 40) -> str:
    """A text on one line, cut off after so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


@functools.lru_cache(maxsize=8)
def place_of(text: str, library: Library = "torch") -> Place:
    """A text and its tree, which are not to be changed: many edits of one file are tried."""
    return Place(text, library=library)
