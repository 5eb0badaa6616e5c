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

from __future__ import annotations

from whynan.records import Data, Element, Finding
from whynan.rules.base import GENERAL, Explanation, Rule
from whynan.rules.facts import result
from whynan.rules.wording import data_text, origin_kind

_WHOLE = (
    " A sample that is NaN throughout was usually divided by something of its own that is 0: the maximum of an empty mask, "
    "the sum or the standard deviation of a constant one."
)


def match(finding: Finding) -> Explanation | None:
    if finding.birth != "entered" or origin_kind(finding) in ("uninitialised", "ahead"):
        return None
    whole = _whole_rows(finding)
    source = data_text(finding.data) or finding.message or "data from outside"
    verb = "hold" if finding.data is not None and finding.data.n_rows > 1 else "holds"
    return Explanation(
        f"{source} {verb} {result(finding)}{_which(finding.element, whole)}",
        _explanation(finding.data) + (_WHOLE if whole else ""),
        GENERAL,
    )


def _which(element: Element, whole: int) -> str:
    """Which elements: all of some rows, or the first one and how many."""
    if whole:
        return f": every element of the {'row' if whole == 1 else f'{whole} rows'}"
    place = f" at {list(element.index)}" if element.index else ""
    if element.total == 1:
        return place
    count = "all" if element.count == element.total else f"{element.count:,}"
    return f"{place}: {count} of its {element.total:,} elements"


def _whole_rows(finding: Finding) -> int:
    """How many rows of a batch hold nothing but NaN; 0 where one of the bad rows holds something else."""
    element, data = finding.element, finding.data
    if data is None or data.kind != "batch" or not data.n_rows or element.total == 1:
        return 0
    if data.n_rows == 1 and element.count == element.total:
        # read as a sample, before it was made a row of the batch
        return 1
    if len(element.shape) < 2:
        return 0
    return data.n_rows if element.count * element.shape[0] == data.n_rows * element.total else 0


def _explanation(data: Data | None) -> str:
    told = "It was there when it was first read."
    if data is not None and data.worker is not None:
        told = "It was there when the worker had loaded it: what is computed in a worker is not looked at."
    if data is None or not data.indices or data.in_order:
        return told
    return f"{told} The dataset index holds if the collate function keeps the order of the samples."


RULE = Rule("WN001", "nan-in-data", match)
