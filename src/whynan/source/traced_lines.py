"""The source of an operation in a graph that was traced: code and instruction of the frames of its stack trace."""

from __future__ import annotations

import ast
import re
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.ops import spelling
from whynan.source.exported_expressions import callee_name, candidates
from whynan.source.positions import codes_within, locate
from whynan.source.syntax import lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType

    from whynan.source.syntax import Spanned

_FRAME: Final = re.compile(r' *File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_\d+")
"""What dynamo calls the rest of a function behind a graph break."""
_MARKS: Final = re.compile(r"    (?P<before> *)(?P<marks>[~^]+) *")


class TracedOperation(NamedTuple):
    """An operation of a graph: the stack trace that it carries, as Python prints it, and what runs.

    `turn`: how many operations with the same stack trace and name run before it.
    """

    stack: str
    name: str
    turn: int = 0


class TracedFrame(NamedTuple):
    """One frame of a stack trace: its code, compiled anew from the file, and the instruction that it stood at."""

    code: CodeType
    instruction: int


class _Frame(NamedTuple):
    file: str
    line: int
    function: str
    text: str
    marks: tuple[int, int] | None


def traced_frames(operation: TracedOperation) -> list[TracedFrame]:
    """The frames of an operation's stack trace, the innermost first.

    Those are left out whose file is gone, or has no such line any more. The marks of a stack trace (``^^^^``) tell
    where an expression begins, and hardly where it ends: what begins there is told apart by what it calls. Without
    marks, as ``torch.export`` writes it, so is all that stands in the line.
    """
    frames = _frames(operation.stack)
    found: list[TracedFrame] = []
    for place, frame in enumerate(frames):
        called = frames[place + 1].function if place + 1 < len(frames) else None
        asked = operation if called is None else TracedOperation("", called)
        located = _located(frame, asked, called is None)
        if located is not None:
            found.append(located)
    return found[::-1]


def _frames(stack: str) -> list[_Frame]:
    """The frames of a stack trace, outermost first."""
    lines = stack.split("\n")
    found: list[_Frame] = []
    for number, line in enumerate(lines):
        frame = _FRAME.fullmatch(line)
        if frame is None:
            continue
        text, below = (lines[place] if place < len(lines) else "" for place in (number + 1, number + 2))
        marks = _MARKS.fullmatch(below)
        span = None if marks is None else (marks.start("marks") - 4, marks.end("marks") - 4)
        resumed = _RESUMED.fullmatch(frame["function"])
        function = frame["function"] if resumed is None else resumed["function"]
        found.append(_Frame(frame["file"], int(frame["line"]), function, text.strip(), span))
    return found


def _located(frame: _Frame, asked: TracedOperation, is_operator: bool) -> TracedFrame | None:
    source = tuple(lines_of(frame.file))
    line = source[frame.line - 1].rstrip("\n") if 0 < frame.line <= len(source) else ""
    whole = line.rstrip()
    if not whole or whole.strip() != frame.text:
        return None
    # blanks at the end of a line move the marks to the left
    indent = len(line) - len(line.lstrip()) + len(line) - len(whole)
    begin, end = (len(whole[: indent + place].encode()) for place in frame.marks or (0, 0))
    for code in _codes(frame.file, source):
        if code.co_name != frame.function:
            continue
        # of the instructions of one expression the last is what it does
        spans: dict[tuple[int, int, int], int] = {}
        for index, (first, last, column, end_column) in enumerate(code.co_positions()):
            if first != frame.line or last is None or column is None or end_column is None:
                continue
            if column == begin or frame.marks is None:
                spans[last, end_column, -column] = index
        exact = spans.get((frame.line, end, -begin)) if end < len(whole.encode()) else None
        if exact is not None:
            return TracedFrame(code, 2 * exact)
        ordered = [TracedFrame(code, 2 * index) for _, index in sorted(spans.items())]
        if ordered:
            return _chosen(ordered, asked, is_operator)
    return None


def _chosen(ordered: Sequence[TracedFrame], asked: TracedOperation, is_operator: bool) -> TracedFrame:
    """Of what begins at one place, the shortest first, that which asks for an operation, or calls a function."""
    nodes: list[tuple[TracedFrame, Spanned]] = []
    for frame in ordered:
        where = locate(*frame)
        if where is not None and where.node is not None:
            nodes.append((frame, where.node))
    calls = [(frame, node) for frame, node in nodes if isinstance(node, ast.Call)]
    if is_operator:
        name = spelling.canonical(asked.name)
        asking = [frame for frame, node in nodes if candidates([node], name, {name})]
    else:
        asking = [frame for frame, node in calls if callee_name(node) == asked.name]
    if asking:
        # in a loop each turn asks for each of them once
        return asking[asked.turn % len(asking)]
    # a module, or a function under another name
    return calls[0][0] if calls else ordered[-1]


@lru_cache(maxsize=64)
def _codes(file: str, source: tuple[str, ...]) -> tuple[CodeType, ...]:
    """The code objects of a file, as Python would make them of it now."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tuple(codes_within(compile("".join(source), file, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return ()
