"""An operand of a call of the user's, written otherwise where the call is."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from whynan.expr.match import Match
from whynan.expr.pattern import pattern
from whynan.fixes.candidates import Declined
from whynan.fixes.python.candidates import spot_of
from whynan.fixes.python.constructors import ArgumentEdit
from whynan.fixes.python.edit import Editor, by_statement, insertions
from whynan.fixes.python.imports import with_imports
from whynan.fixes.python.write import NAMINGS, UnwritableError
from whynan.records.intents import FixIntent
from whynan.source.text import apply_edits, is_python

if TYPE_CHECKING:
    from whynan.fixes.python.candidates import Spot
    from whynan.fixes.python.edit import Edited
    from whynan.records import Finding
    from whynan.records.intents import OperandIntent

_WHOLE: Final = pattern("x")[1]


def operand_edit(path: str, text: str, finding: Finding, intent: OperandIntent) -> ArgumentEdit | Declined | None:
    """The edit of the call at a finding's site; why it cannot be written; None where that gives no such operand."""
    spot = spot_of(text, finding)
    if isinstance(spot, str) or not isinstance(spot.birth, ast.expr):
        return None
    node = next((n for call in ast.walk(spot.birth) if (n := _operand(call, intent)) is not None), None)
    if node is None:
        return None
    after = rewritten(spot, node, intent.title, intent.replacement)
    if isinstance(after, Declined):
        return after
    return ArgumentEdit(intent.title, path, text, after, intent.replacement, spot.place.code(node))


def rewritten(spot: Spot, node: ast.expr, title: str, replacement: str) -> str | Declined:
    """The text with another expression, written of ``x``, in the place of one; or why it cannot be written."""
    fix = FixIntent(title, "guard", "x", replacement)
    why = "it cannot be written there"
    for naming in NAMINGS:
        if naming == "nowhere" and not spot.reader.is_pure(node):
            break
        try:
            match = Match(variables={"x": spot.reader.read(node)})
            edited = Editor(spot.reader, naming).edit_match(node, _WHOLE, fix, match)
        except UnwritableError as error:
            why = str(error)
            continue
        after = _applied(spot, edited)
        if is_python(after):
            return after
    return Declined(title, why)


def _applied(spot: Spot, edited: Edited) -> str:
    edits = [*edited.edits, *insertions(spot.place, by_statement(spot.place, [edited]))]
    return with_imports(apply_edits(spot.place.text, edits), edited.imports)


def _operand(call: ast.AST, intent: OperandIntent) -> ast.expr | None:
    """The operand that a call gives, by name or by position."""
    if not isinstance(call, ast.Call):
        return None
    if intent.method != "forward" and not (isinstance(call.func, ast.Attribute) and call.func.attr == intent.method):
        return None
    given = next((k.value for k in call.keywords if k.arg == intent.operand), None)
    if given is not None or any(isinstance(a, ast.Starred) for a in call.args):
        return given
    return call.args[intent.position] if len(call.args) > intent.position else None
