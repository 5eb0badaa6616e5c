"""Edited tail: the rest of a running function as another text of its file has it, for its code cannot be swapped."""

from __future__ import annotations

import ast
import copy
import difflib
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from whynan.replay.continuation.code import owner_of
from whynan.verify.in_place.instrument import TELL

if TYPE_CHECKING:
    from types import CodeType

    from whynan.replay.continuation.code import Tail

_Place = tuple[int, int, int | None, int | None]
_Block = list[ast.stmt]


def edit_tail(tail: Tail, before: str, after: str | ast.Module) -> Tail:
    """The tail with the statements that another text of the file has in the places of its own.

    Statements are told apart by their position in the first text. What the other text changes in the head of a
    compound statement of which the tail has only a part stays as it was.

    Raises:
        ValueError: where the function is not in both texts.
    """
    old, new = ast.parse(before), ast.parse(after) if isinstance(after, str) else after
    mine, other = _body(old, tail.owner.code), _body_of_same(old, new, tail.owner.code)
    changes = _Changes()
    if isinstance(after, str):
        changes.diff_blocks(mine, other)
    else:
        changes.diff_calls(mine, other)
    statements = changes.apply_to(copy.deepcopy(list(tail.statements)))
    return replace(tail, statements=tuple(statements))


def lines_after(before: str, after: str, line: int) -> range:
    """The lines of another text that one line of a text stands at, or those that stand in its place."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for kind, begin, end, begin_new, end_new in matcher.get_opcodes():
        if begin < line <= end:
            at = line - begin + begin_new
            return range(at, at + 1) if kind == "equal" else range(begin_new + 1, end_new + 1)
    return range(0)


def _body(tree: ast.Module, code: CodeType) -> _Block:
    owner = owner_of(tree, code)
    if owner is not None:
        return owner.node.body
    # an edit before this one may have moved it
    named = _functions_named(tree, code.co_qualname)
    if len(named) != 1:
        raise ValueError(f"{code.co_qualname} is not in the text")
    return named[0].body


def _body_of_same(old: ast.Module, new: ast.Module, code: CodeType) -> _Block:
    """The body of the function of the same name in another tree, which may stand on another line."""
    if code.co_name == "<module>":
        return new.body
    olds, news = _functions_named(old, code.co_qualname), _functions_named(new, code.co_qualname)
    if len(olds) != len(news):
        raise ValueError(f"{code.co_qualname} is not in both texts")
    if len(news) == 1:
        return news[0].body
    lines = [min([node.lineno, *(d.lineno for d in node.decorator_list)]) for node in olds]
    return news[lines.index(code.co_firstlineno)].body


def _functions_named(node: ast.AST, qualname: str, prefix: str = "") -> list[ast.FunctionDef]:
    found: list[ast.FunctionDef] = []
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                found += _functions_named(child, qualname, f"{prefix}{name}.")
            case ast.FunctionDef(name=name):
                found += [child] if prefix + name == qualname else []
                found += _functions_named(child, qualname, f"{prefix}{name}.<locals>.")
            case _:
                found += _functions_named(child, qualname, prefix)
    return found


class _Changes:
    """What takes the place of which statements."""

    def __init__(self) -> None:
        self._instead: dict[_Place, tuple[str, _Block]] = {}
        self._ahead: dict[_Place, _Block] = {}
        self._behind: dict[_Place, _Block] = {}
        self._lines: dict[_Place, int] = {}
        """By how many lines a statement that stays stands further down."""

    def diff_blocks(self, old: _Block, new: _Block) -> None:
        """Learn how one block differs from another."""
        matcher = difflib.SequenceMatcher(None, [_head(s) for s in old], [_head(s) for s in new], autojunk=False)
        for _, begin, end, begin_new, end_new in matcher.get_opcodes():
            if end - begin == end_new - begin_new:
                for one, other in zip(old[begin:end], new[begin_new:end_new], strict=True):
                    self._diff_statements(one, other)
            elif begin < end:
                for statement in old[begin:end]:
                    self._replace(statement, [])
                self._replace(old[begin], new[begin_new:end_new])
            elif begin < len(old):
                self._ahead[_place(old[begin])] = new[begin_new:end_new]
            elif old:
                self._behind[_place(old[-1])] = new[begin_new:end_new]

    def _diff_statements(self, old: ast.stmt, new: ast.stmt) -> None:
        if _head(old) != _head(new):
            self._replace(old, [new])
            return
        self._lines[_place(old)] = new.lineno - old.lineno
        for mine, other in zip(_blocks(old), _blocks(new), strict=True):
            self.diff_blocks(mine, other)

    def diff_calls(self, old: _Block, new: _Block) -> None:
        """Learn where another block, of the same statements at the same places, has calls that it tells by."""
        calls: _Block = []
        rest = iter(old)
        for statement in new:
            if _is_recorder_call(statement):
                calls.append(statement)
                continue
            mine = next(rest)
            if calls:
                self._ahead[_place(mine)] = calls
            calls = []
            if not _blocks(mine):
                self._replace(mine, [statement])
            for inner, other in zip(_blocks(mine), _blocks(statement), strict=True):
                self.diff_calls(inner, other)

    def _replace(self, old: ast.stmt, new: _Block) -> None:
        self._instead[_place(old)] = _head(old), new

    def apply_to(self, block: _Block) -> _Block:
        """A block with what takes the place of its statements."""
        made: _Block = []
        for statement in block:
            place = _place(statement)
            for inner in _blocks(statement):
                inner[:] = self.apply_to(inner) or [ast.copy_location(ast.Pass(), statement)]
            made += copy.deepcopy(self._ahead.get(place, []))
            _move(statement, self._lines.get(place, 0))
            head, instead = self._instead.get(place, ("", []))
            # what is left of a return, or of a loop, stays what it is
            made += copy.deepcopy(instead) if head == _head(statement) else [statement]
            made += copy.deepcopy(self._behind.get(place, []))
        return made


def _move(statement: ast.stmt, lines: int) -> None:
    """Have a statement, without the blocks that it holds, stand so many lines further down."""
    inner = {id(node) for block in _blocks(statement) for each in block for node in ast.walk(each)}
    for node in ast.walk(statement):
        if lines and id(node) not in inner and isinstance(node, ast.stmt | ast.expr):
            node.lineno += lines
            node.end_lineno = None if node.end_lineno is None else node.end_lineno + lines


def _place(statement: ast.stmt) -> _Place:
    # what a loop was made of on the way to a tail has none
    at = (getattr(statement, name, 0) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"))
    line, column, end_line, end_column = at
    return line, column, end_line, end_column


def _is_recorder_call(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name == TELL
        case _:
            return False


def _head(statement: ast.stmt) -> str:
    """A statement without the blocks in it."""
    if not _blocks(statement):
        return ast.dump(statement)
    bare = copy.deepcopy(statement)
    for block in _blocks(bare):
        block.clear()
    return ast.dump(bare)


def _blocks(statement: ast.stmt) -> list[_Block]:
    """The blocks of a compound statement of this scope; a nested function or class is one statement."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    found: list[_Block] = []
    parts = (c for c in ast.iter_child_nodes(statement) if isinstance(c, ast.ExceptHandler | ast.match_case))
    for node in [statement, *parts]:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                found.append(cast("_Block", block))
    return found
