"""What has left the forward's result out where its gradient went bad, in words."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.ops.aten import base_name
from whynan.rules.facts import result
from whynan.rules.wording import readable

if TYPE_CHECKING:
    from whynan.records import ChainLink, Finding, Selection

_WRITERS: Final = ("fill", "zero", "copy", "index_put")
_TRUTH: Final = {"where": {"self": "False", "other": "True"}, "masked_fill": {"self": "True"}}
"""What the mask is where an argument is left out."""


def left_out(finding: Finding) -> Selection | None:
    """What has left the element out; None where nothing has, or where that is not known."""
    return None if finding.around is None else finding.around.left_out


def left_out_by(found: Selection, what: str) -> str:
    """``torch.where at line 13 leaves out log at x = 0, for x > 0 is False``."""
    name = base_name(found.op)
    name = name if name.startswith("_") else name.removesuffix("_")
    doer = {"where": "torch.where", "mul": "a product with 0", "slice": "a slice or an index"}.get(
        name, "an assignment" if name in _WRITERS else readable(name)
    )
    line = f" at line {found.line}" if found.line is not None else ""
    truth = "0" if name == "mul" else _TRUTH.get(name, {}).get(found.side)
    why = f", for {found.mask} is {truth}" if found.mask is not None and truth is not None else ""
    return f"{doer}{line} leaves out {what}{why}"


def coming_back(finding: Finding) -> ChainLink | None:
    """The step in which a birth in the forward comes back, if the first in the backward was computed from it."""
    steps = (link for link in finding.chain if link.role == "step" and link.phase == "backward")
    first = next((link for link in steps if link.typed_summary.kind == "bears"), None)
    return first if first is not None and first.typed_summary.values["back"] else None


def also_left_out(finding: Finding, code: str) -> str:
    """What is added to the explanation of another rule: that leaving the result out is no help."""
    found = left_out(finding)
    if code == "WN510":
        return ""
    if found is not None:
        return f" Here {left_out_by(found, 'the result')}; the derivative is computed all the same."
    back = coming_back(finding)
    if back is None or any(reach.kind == "loss" for reach in finding.reaches):
        return ""
    line = f" at line {back.site.line}" if back.site is not None else ""
    return f" The {result(finding)} is not in the loss; the derivative{line} is computed from it all the same."
