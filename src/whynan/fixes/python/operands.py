"""An operand of a call of the user's, written otherwise where the call is, or where the program makes the number."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
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
from whynan.source.text import apply_edits, is_python, place_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.fixes.python.candidates import Spot
    from whynan.fixes.python.edit import Edited
    from whynan.records import ChainLink, Finding, Site
    from whynan.records.intents import OperandIntent
    from whynan.source.text import Place

_WHOLE: Final = pattern("x")[1]
_INFINITY: Final = re.compile(r"(-?)(?:float\('([+-]?)inf(?:inity)?'\)|(?:math|torch|np|numpy)\.inf)")
"""An infinity as a number of Python's, as it is unparsed."""
_LARGE: Final = {"float16": "-1e4"}
_LARGEST: Final = "-1e30"


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


def finite_instead(text: str, sites: Sequence[Site], dtype: str) -> str | None:
    """A text whose expressions at some sites write a large negative number in place of -Inf; None where one has none.

    Its exponential is 0 all the same, and the sum of as many as there may be is no -Inf either.
    """
    place = place_of(text)
    nodes = [place.node_of(site) for site in sites]
    number = _LARGE.get(dtype, _LARGEST)
    edits: dict[tuple[int, int], str] = {}
    for node in nodes:
        written = [each for each in ast.walk(node) if written_infinity(each) == -math.inf] if node is not None else []
        if not written:
            return None
        edits |= {place.span(each): number for each in written if isinstance(each, ast.expr)}
    edited = apply_edits(text, [(*span, new) for span, new in edits.items()])
    return edited if is_python(edited) else None


def finite_texts(text: str, sites: Sequence[Site]) -> list[str]:
    """All that comes of giving large negative numbers in place of -Inf, of whatever dtype."""
    made = (finite_instead(text, sites, dtype) for dtype in (*_LARGE, "")) if sites else ()
    return [each for each in made if each is not None]


def written_infinities(finding: Finding) -> list[Site]:
    """Where the program writes the -Inf that a finding is of, as far as that is in one file."""
    links = (link for link in finding.chain if link.role == "cause" and link.typed_summary.kind == "written_by")
    sites = [link.site for link in links if link.site is not None]
    return list(dict.fromkeys(site for site in sites if site.file == sites[0].file))


def written_infinity(node: ast.AST) -> float | None:
    """The Inf or -Inf that an expression writes, as ``float("-inf")`` and ``-math.inf`` do; None of anything else."""
    found = _INFINITY.fullmatch(ast.unparse(node).lower()) if isinstance(node, ast.expr) else None
    return None if found is None else -math.inf if "-" in (found[1], found[2]) else math.inf


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


# -- A number bounded where a distribution is given it, of which that then takes a logarithm ---------------------------


_OUT_OF_DOMAIN: Final = ("where(x <= 0, {}, x)", "0 or below")
_AT_POLE: Final = ("where(x == 0, {}, x)", "0")
_BOUNDS: Final = {
    **dict.fromkeys(("WN201", "WN202", "WN302"), _OUT_OF_DOMAIN),
    **dict.fromkeys(("WN101", "WN102"), _AT_POLE),
}
"""By the rule: what takes the place of a number, and of which."""
_LEAST: Final = {"float16": "1e-3", "bfloat16": "1e-2", "float64": "1e-12"}
_LEAST_OF_FLOAT32: Final = "1e-6"


@dataclass(frozen=True, slots=True)
class ProducerEdit:
    """An edit where a number is made: the text afterwards, and what is given in place of what."""

    title: str
    edited: str
    instead: str


def producer_of(finding: Finding) -> ChainLink | None:
    """What made the number of which a library's code has no finite value; None where it is the program's own code."""
    at_fault = next((o for o in finding.element.operands if o.name in ("self", "other") and _is_edge(o.value)), None)
    if finding.phase == "backward" or finding.rule not in _BOUNDS or at_fault is None or at_fault.expression:
        return None
    made = [link for link in finding.chain if link.role == "cause"][-1:]
    given = (link for link in made if link.site is not None and link.site != finding.site)
    return next((link for link in given if link.typed_summary.values.get("result") == at_fault.value), None)


def _is_edge(value: object) -> bool:
    return isinstance(value, (int, float)) and value <= 0


def producer_edit(text: str, finding: Finding) -> ProducerEdit | Declined | None:
    """The edit of a file's text where a distribution is given the number; why it cannot be written; None if it is none.

    Nothing else reads what is written there.
    """
    made = producer_of(finding)
    spot = None if made is None else spot_of(text, finding.model_copy(update={"site": made.site}))
    given = None if spot is None or isinstance(spot, str) else _given_to_distribution(spot)
    if spot is None or isinstance(spot, str) or given is None:
        return None
    replacement, whose = _BOUNDS[finding.rule]
    least = _LEAST.get(finding.element.dtype, _LEAST_OF_FLOAT32)
    title = f"{least} in place of what is {whose}, where it is given"
    edited = rewritten(spot, given, title, replacement.format(least))
    instead = f"where {spot.place.code(given)} is {whose}, {least} is given to the distribution, with a gradient of 0"
    return ProducerEdit(title, edited, instead) if isinstance(edited, str) else edited


def _given_to_distribution(spot: Spot) -> ast.expr | None:
    """The argument of a distribution of PyTorch's that an expression is, or the one name that it is given."""
    place, node = spot.place, spot.birth
    match place.parents.get(node):
        case ast.Call() | ast.keyword() if isinstance(node, ast.expr) and _is_argument(place, node):
            return node
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is node:
            named = [n for n in ast.walk(place.function(node)) if isinstance(n, ast.Name) and n.id == name]
            given = [n for n in named if isinstance(n.ctx, ast.Load) and _is_argument(place, n)]
            is_one = sum(isinstance(n.ctx, ast.Store) for n in named) == len(given) == 1
            return given[0] if is_one else None
        case _:
            return None


def _is_argument(place: Place, node: ast.expr) -> bool:
    parent = place.parents[node]
    call = place.parents[parent] if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or node is call.func:
        return False
    names = place.meaning(call.func)
    return names is not None and list(names[:2]) == ["torch", "distributions"]
