"""WN002 uninitialised-memory: memory was read before anything was written to it.

What it is
    A tensor from torch.empty and its like was read where nothing had been written.

Why it breaks
    It holds whatever the memory held before; sometimes that is NaN or Inf, and another run differs.

Example
    Bad::

        buffer = torch.empty(4)
        buffer[:2] = 1.0
        y = buffer.sum()

    Good::

        buffer = torch.zeros(4)
        buffer[:2] = 1.0
        y = buffer.sum()

Fix
    Use torch.zeros, or read only what was written.

When it is fine
    Never: what is read must have been written.

References
    torch.utils.deterministic.fill_uninitialized_memory; torchrec #2648.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import result
from whynan.rules.wording import origin_kind


def match(finding: Finding) -> Explanation | None:
    if finding.birth != "entered" or origin_kind(finding) != "uninitialised":
        return None
    element = finding.element
    place = f" at {list(element.index)}" if element.index else ""
    return Explanation(
        f"uninitialised memory was read: it holds {result(finding)}{place}, "
        f"and {element.count:,} of its {element.total:,} elements are bad",
        "torch.empty gives memory as it lies; these elements were read before anything was written to them. "
        "Another run may find other values there.",
        OPERATION,
    )


RULE = Rule("WN002", "uninitialised-memory", match)
