"""From an instruction to its site: file, lines, character columns, expression, function; the file's hash."""

from __future__ import annotations

import ast
import dis
import hashlib
import io
import itertools
import linecache
import os
import re
import sys
import textwrap
import warnings
from types import CodeType
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.records import Site
from whynan.source.syntax import Span, Spanned, Syntax, lines_of, span_of, syntax_of

if TYPE_CHECKING:
    from collections.abc import Iterator


# -- The code on Python's command line (``python -c``), which has no file, and of which nothing else keeps the text ----


FILE: Final = "<string>"
"""What Python calls the code of its command line, and much other code besides."""


class _Command(NamedTuple):
    syntax: Syntax
    codes: frozenset[CodeType]


_known: dict[str, _Command] = {}


def set_command_source(text: str | None) -> None:
    """This is the code on the command line of this process; None where it runs a script or a module."""
    if text is None or FILE in _known:
        return
    if sys.version_info >= (3, 14):
        # as Python itself does since then
        text = textwrap.dedent(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # the same text gives equal code, and other text of the same name gives other code
            codes = frozenset(codes_within(compile(f"{text}\n", FILE, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return
    _known[FILE] = _Command(Syntax(list(io.StringIO(text, newline=None))), codes)


def syntax_of_command(code: CodeType) -> Syntax | None:
    """The syntax that a code object is of, if it was compiled of the code on the command line; else None."""
    command = _known.get(code.co_filename)
    return None if command is None or code not in command.codes else command.syntax


def line_of_command(number: int) -> str | None:
    """A line of the code on the command line, by its number from 1; None where there is none."""
    command = _known.get(FILE)
    lines = [] if command is None else command.syntax.lines
    return lines[number - 1].rstrip("\n") if 0 < number <= len(lines) else None


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """A code object, and those of the functions and classes that it makes."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_within(constant)


# -- From an instruction to its site: file, lines, character columns, expression and function --------------------------


_CACHE: Final = dis.opmap.get("CACHE", 0)
_COMPREHENSION: Final = re.compile(r"(\.?<(listcomp|setcomp|dictcomp|genexpr)>)+$")
_MOST_SITES: Final = 1 << 16

# What an instruction executes: nodes of one span are told apart by it (a call from the statement that it is all of).
_KINDS: Final[tuple[tuple[str, tuple[type[Spanned], ...]], ...]] = (
    ("CALL", (ast.Call,)),
    ("PRECALL", (ast.Call,)),
    ("BINARY_OP", (ast.BinOp, ast.AugAssign, ast.Subscript)),  # a subscript since Python 3.14
    ("BINARY_S", (ast.Subscript,)),
    ("STORE_S", (ast.Subscript,)),
    ("DELETE_SUBSCR", (ast.Subscript,)),
    ("COMPARE_OP", (ast.Compare,)),
    ("CONTAINS_OP", (ast.Compare,)),
    ("UNARY_", (ast.UnaryOp,)),
    ("LOAD_ATTR", (ast.Attribute,)),
    ("LOAD_METHOD", (ast.Attribute,)),
    ("STORE_ATTR", (ast.Attribute,)),
)

# Statements whose text goes on for long after what an instruction does for them.
_COMPOUND: Final = (ast.With, ast.AsyncWith, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Match, ast.Try)


class Instruction(NamedTuple):
    """One instruction: its name, and what is known of where it stands."""

    name: str
    line: int
    span: Span | None


class Located(NamedTuple):
    """An instruction's node, and the file that it stands in; no node where the file is not that of the code."""

    syntax: Syntax
    node: Spanned | None


def _instruction(code: CodeType, lasti: int, line: int | None) -> Instruction:
    operations = code.co_code[::2]
    index = min(max(lasti, 0) // 2, len(operations) - 1)
    # a frame that waits for a Python function stands at the caches behind its instruction
    while index and operations[index] == _CACHE:
        index -= 1
    positions = list(itertools.islice(code.co_positions(), index + 1))
    name = dis.opname[operations[index]]
    first, last, column, end_column = positions[index] if index < len(positions) else (None, None, None, None)
    if first and last and column is not None and end_column is not None:
        return Instruction(name, first, Span(first, last, column, end_column))
    if not first:
        earlier = (p[0] for p in reversed(positions) if p[0])
        first = line or next(earlier, code.co_firstlineno)
    return Instruction(name, first, None)


def _find(code: CodeType, instruction: Instruction, span: Span) -> Located:
    kinds = next((k for start, k in _KINDS if instruction.name.startswith(start)), ())
    syntax = syntax_of_command(code) or syntax_of(code.co_filename)
    node = syntax.node_at(span, kinds)
    if node is None and syntax.lines:
        # the lines may be older than the code: a file that was written anew in one process
        linecache.checkcache(code.co_filename)
        syntax = syntax_of(code.co_filename)
        node = syntax.node_at(span, kinds)
    return Located(syntax, None if node is None else _narrowed(node))


def _narrowed(node: Spanned) -> Spanned:
    """The part of a statement that is executed where the whole of it has the position: the test of an ``if``."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test) | ast.IfExp(test=test):
            return test
        case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated):
            return iterated
        case ast.With(items=[item]) | ast.AsyncWith(items=[item]):
            return item.context_expr
        case _:
            return node


def locate(code: CodeType, lasti: int) -> Located | None:
    """The syntax node that an instruction executes; None without column ranges."""
    instruction = _instruction(code, lasti, None)
    if instruction.span is None:
        return None
    return _find(code, instruction, instruction.span)


def _function(qualname: str) -> str:
    """``outer.<locals>.inner`` -> ``outer.inner``; a comprehension belongs to the function that it stands in."""
    return _COMPREHENSION.sub("", qualname.replace("<locals>.", "")) or "<module>"


def file_of_site(filename: str) -> str:
    """A file relative to the working directory if it lies inside, else absolute; names that are no file as they are."""
    if filename.startswith("<"):
        return filename
    try:
        here = os.getcwd()
    except OSError:  # the directory was removed
        return filename
    return os.path.abspath(filename).removeprefix(os.path.join(here, ""))


def _resolve(code: CodeType, lasti: int, line: int | None) -> Site:
    instruction = _instruction(code, lasti, line)
    site = Site(file=file_of_site(code.co_filename), line=instruction.line, function=_function(code.co_qualname))
    if instruction.span is None:
        return _with_line(site, code)
    syntax, node = _find(code, instruction, instruction.span)
    if isinstance(node, _COMPOUND):
        return _with_line(site, code)
    span = span_of(node) if node is not None else instruction.span
    text = syntax.line_of(span)
    # source that parses but has nothing at the span is not what was compiled; what does not parse cannot be asked
    if text is None or (node is None and syntax.tree is not None):
        return site
    return site.model_copy(
        update={
            "line": span.line,
            "column": syntax.column(span.line, span.column),
            "end_line": span.end_line,
            "end_column": syntax.column(span.end_line, span.end_column),
            "code": text,
        }
    )


def _with_line(site: Site, code: CodeType) -> Site:
    command = syntax_of_command(code)
    lines = lines_of(code.co_filename) if command is None else command.lines
    text = lines[site.line - 1].strip() if 0 < site.line <= len(lines) else ""
    return site.model_copy(update={"code": text or None})


_sites: dict[tuple[int, int, int | None], tuple[CodeType, Site]] = {}


def resolve(code: CodeType, lasti: int, *, line: int | None = None) -> Site:
    """The site of the instruction at byte offset `lasti` (a frame's ``f_lasti``) of a code object.

    Lines and columns count from 1, columns in characters, ends exclusive; ``code`` is the expression on one line.
    Without column ranges (``-X no_debug_ranges``), or for no single expression, it has only the line, and the text of
    it; without the source, or where the source is no longer what was compiled, only the line. `line` serves an
    instruction that has none.
    """
    # By identity: code objects of two cells are equal when their text is. The code is kept, so that its id stays its.
    key = (id(code), lasti, line)
    known = _sites.get(key)
    if known is None:
        if len(_sites) >= _MOST_SITES:
            _sites.clear()
        known = _sites[key] = (code, _resolve(code, lasti, line))
    return known[1]


# -- What a source file was during the run: its SHA-256 ----------------------------------------------------------------


def sha256_of(file: str | os.PathLike[str]) -> str | None:
    """The SHA-256 of a file in hexadecimal; None where there is no such regular file, or none that may be read."""
    if not os.path.isfile(file):
        return None
    try:
        with open(file, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError:
        return None
