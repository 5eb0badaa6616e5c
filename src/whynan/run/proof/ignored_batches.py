"""Batches of which a loss has nothing to average: a loop leaves out one whose targets are all to be ignored."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from whynan.run.proof.omissions import Omission
from whynan.source.text import Place, apply_edits, is_python, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.records import Finding

_TARGETS: Final = re.compile(r"labels?|targets?|tgt|y", re.IGNORECASE)
"""What a call names what a loss is compared with."""
_SKIPPED: Final = re.compile(r"\+\s*if \((.{1,80}) == (-?\d{1,9})\)\.all\(\):\s*")
"""The line that a change adds ahead of a call."""
_LONGEST: Final = 60
_FORMS: Final = ("{}", "{}[..., 1:]")
"""The targets, and those of a model that predicts the next of each."""
_MOST: Final = 4
_STEP_LOST: Final = "; a step that is due in that turn comes with the next, and what was gathered for it is in that"
"""Of a loop that makes a step after several batches."""


def without_ignored_batch(text: str, path: str, finding: Finding) -> Iterator[Omission]:
    """The edits that go on with the next batch where all targets of a call are the index that its loss ignores."""
    place = place_of(text)
    ignored = next((o.value for o in finding.element.operands if o.name == "ignore_index"), None)
    call = place.node_of(finding.site) if finding.site is not None else None
    if call is None or not isinstance(ignored, int | float) or not float(ignored).is_integer():
        return
    statement = place.statement(call)
    loop = _loop_of(place, statement)
    if loop is None:
        return
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    targets = list(dict.fromkeys(target for each in calls for target in _targets(place, each)))[:_MOST]
    for form in _FORMS:
        for target in targets:
            edited = _skipping(place, statement, form.format(target), int(ignored))
            if edited is not None:
                which = f"a batch in which all of {form.format(target)} are {int(ignored)}"
                lost = f"{which} is left out, with the rest of that turn of the loop: nothing is learned from it"
                lost += _STEP_LOST * _holds_step(loop)
                yield Omission("no batch without a target", path, edited, lost)


def ignored_texts(text: str, patch: str) -> list[str]:
    """All that leaving out batches makes of a file's text, of what a report's patch asks ahead of a call."""
    asked = {found.groups() for line in patch.splitlines() if (found := _SKIPPED.fullmatch(line)) is not None}
    place, made = place_of(text), list[str | None]()
    statements = dict.fromkeys(place.statement(node) for node in place.parents if isinstance(node, ast.Call))
    for statement in statements if asked else ():
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
        known = {form.format(t) for each in calls for t in _targets(place, each) for form in _FORMS}
        for target, ignored in sorted(asked):
            if target in known and _loop_of(place, statement) is not None:
                made.append(_skipping(place, statement, target, int(ignored)))
    return [each for each in made if each is not None]


def _targets(place: Place, call: ast.Call) -> Iterator[str]:
    """The arguments of a call that may be what its loss is compared with, as the source writes them."""
    for keyword in call.keywords:
        if keyword.arg is None and isinstance(keyword.value, ast.Name):
            yield f'{keyword.value.id}["labels"]'
        elif keyword.arg is not None and _TARGETS.fullmatch(keyword.arg) and _is_read(keyword.value):
            yield place.code(keyword.value)
    for argument in call.args:
        if _is_read(argument):
            yield place.code(argument)


def _is_read(node: ast.expr) -> bool:
    """Whether an expression is a name, or an element or attribute of one, which may be read twice as well as once."""
    if node.lineno != node.end_lineno or (node.end_col_offset or 0) - node.col_offset > _LONGEST:
        return False
    while isinstance(node, ast.Attribute) or (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)):
        node = node.value
    return isinstance(node, ast.Name)


def _loop_of(place: Place, statement: ast.stmt) -> ast.For | None:
    """The loop of its function whose next turn may follow a statement."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr):
        return None
    child: ast.AST = statement
    for up in place.above(statement):
        others = (*getattr(up, "finalbody", ()), *(getattr(up, "orelse", ()) if isinstance(up, ast.For) else ()))
        if child in others or not isinstance(up, ast.With | ast.If | ast.Try | ast.For):
            return None
        if isinstance(up, ast.For):
            return up
        child = up
    return None


def _holds_step(loop: ast.For) -> bool:
    """Whether a loop asks in each turn if an optimizer's step is due."""
    asked = (node for each in loop.body if isinstance(each, ast.If) for node in ast.walk(each))
    return any(isinstance(node, ast.Attribute) and node.attr == "step" for node in asked)


def _skipping(place: Place, statement: ast.stmt, target: str, ignored: int) -> str | None:
    """The text in which a loop goes on ahead of a statement where all of a target is one number."""
    step = "\t" if "\t" in place.text[place.line_start(statement.lineno) : place.span(statement)[0]] else "    "
    edit = place.lines_ahead(statement, f"if ({target} == {ignored}).all():", f"{step}continue")
    edited = "" if edit is None else apply_edits(place.text, [edit])
    return edited if edited and is_python(edited) else None
