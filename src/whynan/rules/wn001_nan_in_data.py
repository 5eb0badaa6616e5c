"""WN001 nan-in-data: a NaN came in from outside.

What it is
    A tensor that no operation of the run wrote (an argument, a parameter, a batch) holds a NaN.

Why it breaks
    Every operation on a NaN gives a NaN; nothing downstream is at fault.

Example
    Bad::

        x = torch.from_numpy(column)      # a missing value is NaN

    Good::

        x = torch.from_numpy(np.nan_to_num(column, nan=column_mean))

Fix
    Clean or drop the sample where it is loaded, or restore the weights from a checkpoint that is finite.

When it is fine
    Missing values that are masked before they are used: they are then absorbed and not reported.

References
    pandas: working with missing data.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if finding.birth != "entered" or "uninitialised" in finding.message:
        return None
    name = finding.element.tensor
    place = f" at {list(finding.element.index)}" if finding.element.index else ""
    source = finding.message or "data from outside"
    return Explanation(
        f"{source} holds NaN{place}, and {finding.element.count:,} of its {finding.element.total:,} elements are NaN",
        "No operation of this run made it: it was there when it was first read" + (f" as {name}." if name else "."),
    )


RULE = Rule("WN001", "nan-in-data", match)
