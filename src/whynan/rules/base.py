"""The rule: a named hazard that recognises a birth by its facts and explains it; and the fallback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from whynan.records import Finding, Operand
from whynan.records.intents import FixIntent
from whynan.rules.facts import result
from whynan.rules.wording import derivative, row_text

# -- What a rule is: a named hazard that recognises a birth by its facts and explains it with their values -------------


Reading = Literal["ranges", "parameters", "masks", "bounds", "gradients"]
"""What a rule of silent damage has to be read for it, beside what bad numbers ask for themselves.

``ranges``: how large the finite values of a tensor are. ``parameters``: them, before and after an optimizer's step.
``masks``: what an operation writes over what. ``bounds``: the constants of sums and clamps. ``gradients``: those that a
step consumes.
"""
Mode = Literal["trace", "watch"]
"""Where every operation is looked at, or only what a step consumes."""

# How much of a birth an explanation covers; of several rules that recognise it, the greatest speaks.
OUTCOME: Final = 5
"""What became of it, whatever it was: that no loss scale cures it."""
GENERAL: Final = 10
"""What the values say, whatever the operation was for: out of range."""
OPERATION: Final = 20
"""One operation and the limits of its domain: 0/0, the logarithm of 0."""
DERIVATIVE: Final = 30
"""The derivative of one known forward operation."""
SETTING: Final = 40
"""What the operation was for: the optimizer's update, the addition into a gradient."""
SELECTION: Final = 45
"""What became of the result: a mask left it out, and its derivative is computed all the same."""
STRUCTURE: Final = 50
"""The expression that the operation is a part of, however it is spelled: the logarithm of a softmax."""
GUARD: Final = 60
"""A guard that the expression was given and that does not hold: a small number that is 0 in the dtype."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence with the values, why in two or three more, and how specific the rule is for this birth."""

    message: str
    explanation: str
    specificity: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A code whose first digit is the family, a name that states the pattern, and the function that recognises it.

    ``since`` is the first version that had the rule, of whynan or of the distribution that brings it. ``also`` names
    further families that it belongs to. ``torch`` says in which versions of PyTorch it bites, where that matters.
    A rule of silent damage says what it ``reads``, and in which ``modes`` it is live; it is asked only of findings with
    ``damage``, and every other rule only of births. ``fixes`` is what would mend it, best first.
    """

    code: str
    name: str
    match: Callable[[Finding], Explanation | None]
    since: str = "0.1"
    also: tuple[str, ...] = ()
    torch: str | None = None
    reads: tuple[Reading, ...] = ()
    modes: tuple[Mode, ...] = ()
    fixes: tuple[FixIntent, ...] = ()


# -- What is said of a birth that no rule explains: all its facts, and no reason ---------------------------------------


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
