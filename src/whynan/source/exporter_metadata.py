"""From what an exporter wrote beside a node of an ONNX model to a site in the source; nothing of it is trusted."""

from __future__ import annotations

import ast
import linecache
import os
import re
import stat
import textwrap
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from whynan.records import Site
from whynan.source.exported_expressions import (
    BODY,
    ExportedNode,
    callee_name,
    control_flow_call,
    expression_in_branch,
    matching_expression,
    parse_node_description,
)
from whynan.source.ownership import Owner, owner_of
from whynan.source.positions import file_of_site
from whynan.source.syntax import Syntax, dotted, one_line, span_of, syntax_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from whynan.source.syntax import Spanned, dotted

STACK: Final = "pkg.torch.onnx.stack_trace"
SCOPES: Final = "pkg.torch.onnx.name_scopes"
FX_NODE: Final = "pkg.torch.onnx.fx_node"

_LONGEST: Final = 1 << 16
"""Characters of one entry that are read."""
_LONGEST_SCOPES: Final = 1 << 13
_LONGEST_NAME: Final = 512
_LARGEST_SOURCE: Final = 1 << 24
_MOST_OF_A_LINE: Final = 1024
"""Nodes of one line that are told apart; a loop that was unrolled may have any number."""
_FRAME: Final = re.compile(r'\s*File "(?P<file>[^"\n]+)", line (?P<line>[0-9]{1,9}), in (?P<function>[^\n]*)')
_DOC_FRAME: Final = re.compile(r"(?P<file>[^\n(]+)\((?P<line>[0-9]{1,9})\): (?P<function>[^\n]*)")
_EXPORTER: Final = re.compile(r"/torch/(?:onnx/|jit/_trace\.py$)")
_MARKS: Final = re.compile(r"\s*[~^]+\s*")
_STRING: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_OTHER_PYTHON: Final = re.compile(r"/lib(?:64)?/python3\.[0-9]+/|/python3[0-9]+/lib/", re.IGNORECASE)
"""In the path of the standard library, on whatever machine."""
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Definition: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef"
_SCRIPTED: Final = re.compile(r"/(?P<path>[^/].*)/[^/]+")


class Frame(NamedTuple):
    """One frame of a stack: its file as it was called where the model was exported, and the text of its line."""

    file: str
    line: int
    function: str
    code: str | None


class Place(NamedTuple):
    """Where a node of a model comes from: the user's site, the library's where the line is in one, and the module."""

    site: Site | None
    library_site: Site | None
    module: str | None


class Exported:
    """What an exporter wrote beside the nodes of a model, which are told apart by the others of their line.

    Args:
        nodes: the metadata of all nodes, in their order.
    """

    def __init__(self, nodes: Iterable[Mapping[str, str]]) -> None:
        found: dict[object, dict[str, None]] = {}
        for metadata in nodes:
            if STACK in metadata and FX_NODE in metadata:
                # one operator may have been exported as several nodes
                found.setdefault(_line_of(metadata), {})[_entry(metadata[FX_NODE])] = None
        self._by_line = {
            line: tuple(asked for text in there if (asked := parse_node_description(text)) is not None)
            for line, there in found.items()
            if len(there) <= _MOST_OF_A_LINE
        }

    def place_of(self, metadata: Mapping[str, str], /, *, name: str = "", doc: str = "") -> Place:
        """Where a node says that it comes from; see :func:`place_of`."""
        beside = self._by_line.get(_line_of(metadata), ()) if STACK in metadata else ()
        return place_of(metadata, name=name, doc=doc, beside=beside)

    def module_of(self, node_name: str, /) -> str | None:
        """See :func:`module_of`."""
        return module_of(node_name)


def _line_of(metadata: Mapping[str, str]) -> object:
    """What the nodes of one line have in common; of a function that was handed to a branch, those of all its lines."""
    stack = _entry(metadata[STACK])
    if BODY in stack and (frames := frames_of(stack)) and frames[-1].file.startswith(BODY):
        return (*((frame.file, frame.line) for frame in frames[:-1]), frames[-1].file)
    return stack, _module(_entry(metadata.get(SCOPES))[:_LONGEST_SCOPES])


def place_of(
    metadata: Mapping[str, str], *, name: str = "", doc: str = "", beside: Sequence[ExportedNode] = ()
) -> Place:
    """Where a node says that it comes from; nothing where it says nothing, or what cannot be.

    Args:
        metadata: of the node, as PyTorch's exporter writes them.
        name: of the node, which tells the module where TorchScript's exporter wrote it.
        doc: its documentation, in which that exporter writes the frames, if it is asked to (``verbose=True``). It
            leaves out what the lines say, so that none is shown: the file may be another by now.
        beside: the nodes of the same line, in their order; without them, of two expressions that may be meant none is
            told.

    The user's site is the innermost frame that is neither installed nor Python's own; where there is none, the
    innermost that is not torch's. A source file is read only to find the expression in a line that it and the model
    tell alike; without it there are only the line and its text.
    """
    module = _module(_entry(metadata.get(SCOPES))[:_LONGEST_SCOPES]) or module_of(_entry(name))
    frames = frames_of(_entry(metadata.get(STACK))) or _frames_of_doc(_entry(doc))
    owners = [_owner(frame.file) for frame in frames]
    asked = parse_node_description(_entry(metadata.get(FX_NODE)))
    own = _last(owners, (Owner.USER,))
    library = _last(owners, (Owner.LIBRARY,))
    if own is None:
        own, library = (library if library is not None else _last(owners, (Owner.STDLIB,))), None
    if own is None:
        return Place(None, None, module)
    site = _site(frames, own, asked, beside, module)
    inner = _site(frames, library, asked, beside, module) if library is not None and library > own else None
    return Place(site.model_copy(update={"module": module}), inner, module)


def module_of(node_name: str) -> str | None:
    """The module that TorchScript's exporter names a node after: ``layers.0.fc`` of ``/layers.0/fc/Gemm``.

    None for a node of the outermost module, and for every other name.
    """
    found = _SCRIPTED.fullmatch(node_name) if len(node_name) <= _LONGEST_NAME else None
    if found is None or not all(found["path"].split("/")):
        return None
    path: list[str] = []
    for scope in found["path"].split("/"):
        # a child of a Sequential is called by its path from the Sequential on: /layer1/layer1.0/conv1/Conv
        if path and scope.startswith(f"{path[-1]}."):
            path.pop()
        path.append(scope)
    return ".".join(path)


def frames_of(stack: str) -> list[Frame]:
    """The frames of a stack as Python prints it, outermost first."""
    frames: list[Frame] = []
    for line in stack.split("\n"):
        found = _FRAME.fullmatch(line)
        if found:
            frames.append(Frame(found["file"], int(found["line"]), found["function"][:_LONGEST_NAME], None))
        elif frames and line.strip() and not _MARKS.fullmatch(line):
            last = frames[-1]
            # from Python 3.13 on all lines of an expression are printed
            frames[-1] = last._replace(code=line if last.code is None else f"{last.code}\n{line}")
    return [frame._replace(code=None if frame.code is None else textwrap.dedent(frame.code)) for frame in frames]


def _frames_of_doc(doc: str) -> list[Frame]:
    """The frames that TorchScript's exporter writes, innermost first, as far as the model's own go."""
    frames: list[Frame] = []
    for line in doc.split("\n"):
        found = _DOC_FRAME.fullmatch(line)
        if found is None or _EXPORTER.search(found["file"].replace("\\", "/")):
            break
        frames.append(Frame(found["file"], int(found["line"]), found["function"][:_LONGEST_NAME], None))
    return frames[::-1]


def _entry(value: object) -> str:
    """One entry, as far as it is text, and of a length that an exporter writes."""
    return value if isinstance(value, str) and len(value) <= _LONGEST else ""


def _module(scopes: str) -> str | None:
    """The module of ``['', 'layers.0', 'layers.0.fc', 'linear']``, whose last entry is the node's own name."""
    names = [found[0][1:-1] for found in _STRING.finditer(scopes)]
    return names[-2][:_LONGEST_NAME] or None if len(names) > 1 else None


def _owner(file: str) -> Owner:
    """Whose a file is, on the machine where the model was exported as far as its path tells."""
    path = file if file.startswith("<") else file.replace("\\", "/")
    if "\0" in path:
        return Owner.LIBRARY
    owner = owner_of(path)
    installed = "/site-packages/" in path or "/dist-packages/" in path
    return Owner.STDLIB if owner is Owner.USER and not installed and _OTHER_PYTHON.search(path) else owner


def _last(owners: list[Owner], wanted: tuple[Owner, ...]) -> int | None:
    return next((place for place in reversed(range(len(owners))) if owners[place] in wanted), None)


def _site(
    frames: list[Frame], place: int, asked: ExportedNode | None, beside: Sequence[ExportedNode], module: str | None
) -> Site:
    frame = frames[place]
    source = _Line(frame)
    site = Site(file=file_of_site(frame.file), line=frame.line, code=source.text, function=source.function)
    inner = next(iter(frames[place + 1 :]), None)
    if inner is not None and inner.file.startswith(BODY):
        return source.branch_site(site, asked, beside)
    if inner is not None:
        # what the line called is a function, and the operator may be deep inside it
        nodes = source.calls_of(inner.function, module)
        node = nodes[0] if len(nodes) == 1 else None
    else:
        node = None if asked is None else source.matching_expression(asked, beside)
    return site if node is None else source.narrow_site(site, node)


class _Line:
    """The line of a frame: in its file, if that still tells it as the model does, else as the model tells it."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        first = (frame.code or "").partition("\n")[0].strip()
        self.text = one_line(frame.code.strip()) or None if frame.code else None
        self._in_file = _syntax_in_file(frame.file, frame.line, first) if first else None
        self._syntax = self._in_file if self._in_file is not None else Syntax((frame.code or "").splitlines(True))

    @property
    def function(self) -> str | None:
        """The qualified name of the function where the file tells it."""
        name = self._frame.function
        if self._in_file is not None:
            path = _enclosing(self._in_file, self._frame.line)
            if path and path[-1] == name:
                return ".".join(path)
        return name or None

    def _nodes(self) -> list[Spanned]:
        return _by_line(self._syntax).get(self._frame.line if self._in_file is not None else 1, [])

    def calls_of(self, function: str, module: str | None) -> list[Spanned]:
        """The calls in the line that go to a function: by its name, or to a module where it is ``forward``."""
        calls = [node for node in self._nodes() if isinstance(node, ast.Call)]
        if function not in _FORWARD:
            return [*(call for call in calls if callee_name(call) == function)]
        named = [call for call in calls if callee_name(call) in (module or "").split(".")]
        return [*(named if len(named) == 1 else (call for call in calls if not self._is_imported(call.func)))]

    def _is_imported(self, callee: ast.expr) -> bool:
        names = dotted(callee) or [getattr(callee, "attr", "")]
        return names[0] in {"torch", "F", "nn", "math", *_BUILTIN, *self._syntax.imports}

    def branch_site(self, site: Site, asked: ExportedNode | None, beside: Sequence[ExportedNode]) -> Site:
        """The site of a node in a function that was handed to a branch or a loop; else that of the call."""
        call = control_flow_call(self._nodes())
        if call is None:
            return site
        node = None
        if asked is not None and self._in_file is not None:
            node = expression_in_branch(self._in_file, call, asked, beside)
        if node is None or self._in_file is None:
            return self.narrow_site(site, call)
        function = ".".join(_enclosing(self._in_file, node.lineno))
        return self.narrow_site(site.model_copy(update={"function": function or None}), node)

    def matching_expression(self, asked: ExportedNode, beside: Sequence[ExportedNode]) -> Spanned | None:
        """The expression in the line that asked for a node, if it can be told which."""
        return matching_expression(self._nodes(), asked, beside, self._syntax.parents)

    def narrow_site(self, site: Site, node: Spanned) -> Site:
        """The site of one expression in the line; without columns where the file does not tell them."""
        span = span_of(node)
        text = self._syntax.line_of(span)
        if not text:
            return site
        if self._in_file is None:
            return site.model_copy(update={"code": text})
        return site.model_copy(
            update={
                "line": span.line,
                "column": self._syntax.column(span.line, span.column),
                "end_line": span.end_line,
                "end_column": self._syntax.column(span.end_line, span.end_column),
                "code": text,
            }
        )


_FORWARD: Final = ("forward", "__call__", "_call_impl", "_wrapped_call_impl")
_BUILTIN: Final = frozenset("abs enumerate float int isinstance len list max min range str sum super tuple zip".split())


def _syntax_in_file(file: str, line: int, text: str) -> Syntax | None:
    """The syntax of a file whose line is still the same; None without such a file."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    # a pipe would never end
    if not file.endswith(".py") or not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_SOURCE:
        return None
    for _ in range(2):
        syntax = syntax_of(file)
        if line <= len(syntax.lines) and syntax.lines[line - 1].strip() == text:
            return syntax
        # the lines may be older than the file
        linecache.checkcache(file)
    return None


@lru_cache(maxsize=256)
def _by_line(syntax: Syntax) -> dict[int, list[Spanned]]:
    """The expressions and statements of a source by the line that Python gives as theirs."""
    found: dict[int, list[Spanned]] = {}
    for node in syntax.parents:
        if isinstance(node, (ast.expr, ast.stmt)):
            line = node.lineno
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                line = node.func.end_lineno or line
            found.setdefault(line, []).append(node)
    return found


def _enclosing(syntax: Syntax, line: int) -> list[str]:
    """The names of the classes and functions around a line, outermost first."""
    around = [node for node in _definitions(syntax) if node.lineno <= line <= (node.end_lineno or node.lineno)]
    return [node.name for node in sorted(around, key=lambda node: node.lineno)]


@lru_cache(maxsize=256)
def _definitions(syntax: Syntax) -> list[_Definition]:
    return [node for node in syntax.parents if isinstance(node, _DEFINITIONS)]
