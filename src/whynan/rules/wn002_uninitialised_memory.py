"""WN002 uninitialised-memory: memory was read before anything was written to it.

What it is
    A tensor from torch.empty and its like was read where nothing had been written.

Why it breaks
    It holds whatever the memory held before; sometimes that is NaN or Inf, and another run differs.

Example
    Bad::

        buffer = torch.empty(n); buffer[:k] = x; y = buffer.sum()

    Good::

        buffer = torch.zeros(n); buffer[:k] = x; y = buffer.sum()

Fix
    Use torch.zeros, or read only what was written.

When it is fine
    Never: what is read must have been written.

References
    torch.utils.deterministic.fill_uninitialized_memory; torchrec #2648.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if finding.birth != "entered" or "uninitialised" not in finding.message:
        return None
    return Explanation(
        f"uninitialised memory was read: {finding.element.count:,} of {finding.element.total:,} elements were bad",
        "torch.empty gives memory as it lies; these elements were read before anything was written to them.",
        2,
    )


RULE = Rule("WN002", "uninitialised-memory", match)
