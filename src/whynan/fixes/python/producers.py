"""A number bounded where the program makes it, of which the code of a library then takes a logarithm or a root."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whynan.fixes.candidates import Declined
from whynan.fixes.python.candidates import spot_of
from whynan.fixes.python.operands import rewritten

if TYPE_CHECKING:
    from whynan.records import ChainLink, Finding

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
    """The edit of a file's text at what made the number; why it cannot be written; None where it is not made there."""
    made = producer_of(finding)
    if made is None:
        return None
    spot = spot_of(text, finding.model_copy(update={"site": made.site}))
    if isinstance(spot, str) or not isinstance(spot.birth, ast.expr):
        return None
    replacement, whose = _BOUNDS[finding.rule]
    least = _LEAST.get(finding.element.dtype, _LEAST_OF_FLOAT32)
    title = f"{least} in place of what is {whose}, where it is made"
    edited = rewritten(spot, spot.birth, title, replacement.format(least))
    code = spot.place.code(spot.birth)
    instead = f"where {code} is {whose}, {least} is given, with a gradient of 0; all else is as it was"
    return ProducerEdit(title, edited, instead) if isinstance(edited, str) else edited
