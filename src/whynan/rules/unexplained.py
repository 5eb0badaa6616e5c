"""What is said of a birth that no rule explains: all its facts, and no reason."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.rules.facts import result
from whynan.rules.wording import derivative, row_text

if TYPE_CHECKING:
    from whynan.records import Finding, Operand

KINDS: Final = {
    "overflow": "finite operands gave an infinity",
    "pole": "an operand lies on a singularity of the operation",
    "invalid": "operands without NaN gave NaN",
    "entered": "it came in from outside",
    "literal": "the program writes it itself",
}


def facts_of(finding: Finding) -> tuple[str, str]:
    """A message with operation, element and operand values, and an explanation that says what is not known."""
    element = finding.element
    place = f" at {list(element.index)}" if element.index else ""
    operands = ", ".join(_stated(o) for o in element.operands)
    of = f" of {operands}" if operands else ""
    doer = finding.op or finding.message or "a value from outside"
    return f"{doer}{of} gives {result(finding)}{place}{derivative(finding)}", _unknown(finding)


def _stated(found: Operand) -> str:
    if found.shape is not None and 0 in found.shape:
        return f"{row_text(found)} (empty)"
    if found.value is None and found.min is None:
        return f"{row_text(found)} ({'gone' if found.origin == 'gone' else 'not read'})"
    return row_text(found)


def _unknown(finding: Finding) -> str:
    sentence = f"No rule of this version explains this birth: {_what(finding)}."
    gone = [
        o.expression or o.name for o in finding.element.operands if o.value is None and o.dtype and o.origin == "gone"
    ]
    if gone:
        plural = "values of" if len(gone) > 1 else "value of"
        verb = "were" if len(gone) > 1 else "was"
        sentence += f" The {plural} {' and '.join(gone)} {verb} overwritten or freed: rerun=True may recover it."
    return f"{sentence}{_made_of(finding)}"


def _made_of(finding: Finding) -> str:
    """Of a node of an ONNX model that stands for several, what capture has said of it."""
    if finding.node is None or finding.birth in ("entered", "literal") or not finding.message:
        return ""
    return f" {finding.message[:1].upper()}{finding.message[1:]}."


def _what(finding: Finding) -> str:
    known = [v for o in finding.element.operands for v in (o.value, o.min, o.max)]
    if finding.birth == "invalid" and any(isinstance(v, float) and v != v for v in known):
        return "an operand holds a NaN that by itself explains none of this"
    return _kind(finding)


def _kind(finding: Finding) -> str:
    known = [v for o in finding.element.operands for v in (o.value, o.min, o.max)]
    if finding.birth == "overflow" and any(v in (float("inf"), float("-inf")) for v in known):
        whose = "an infinite operand of the derivative" if finding.phase == "backward" else "an infinite operand"
        return f"{whose} gave Inf again"
    return KINDS.get(finding.birth or "", "nothing is known of it")
