"""WN001 nan-in-data: a NaN came in from outside.

What it is
    A tensor that no operation of the run wrote (an argument, a parameter, a batch) holds a NaN.

Why it breaks
    Every operation on a NaN gives a NaN; nothing downstream is at fault.

Example
    Bad::

        column = np.array([1.0, np.nan, 3.0], dtype=np.float32)   # a missing value
        x = torch.from_numpy(column) * 2

    Good::

        column = np.array([1.0, np.nan, 3.0], dtype=np.float32)
        x = torch.from_numpy(np.nan_to_num(column, nan=float(np.nanmean(column)))) * 2

Fix
    Clean or drop the sample where it is loaded, or restore the weights from a checkpoint that is finite.

When it is fine
    Missing values that are masked before they are used: they are then absorbed and not reported.

References
    numpy.nan_to_num; pandas: working with missing data.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import GENERAL, Explanation, Rule
from whynan.rules.data import data_text
from whynan.rules.facts import result

if TYPE_CHECKING:
    from whynan.records import Data, Finding


def match(finding: Finding) -> Explanation | None:
    if finding.birth != "entered" or "uninitialised" in finding.message:
        return None
    element = finding.element
    place = f" at {list(element.index)}" if element.index else ""
    source = data_text(finding.data) or finding.message or "data from outside"
    if element.total == 1:
        share = ""
    elif element.count == element.total:
        share = f": all of its {element.total:,} elements"
    else:
        share = f": {element.count:,} of its {element.total:,} elements"
    return Explanation(
        f"{source} holds {result(finding)}{place}{share}",
        _explained(finding.data),
        GENERAL,
    )


def _explained(data: Data | None) -> str:
    told = "No operation of this run made it: it was there when it was first read."
    if data is None or not data.indices or data.in_order:
        return told
    return f"{told} The dataset index holds if the collate function keeps the order of the samples."


RULE = Rule("WN001", "nan-in-data", match)
