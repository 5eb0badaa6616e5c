"""Where a value came in, in words."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.records import Note

if TYPE_CHECKING:
    from whynan.records import Data, Finding

MOST_TOLD: Final = 4
"""So many rows of a batch are told one by one."""


def origin(finding: Finding) -> str:
    """The kind of the origin of a number that no operation bore; empty where there is none."""
    return "" if finding.origin is None else finding.origin.kind


def since(finding: Finding) -> str:
    """The kind of what is known of since when such a number is bad; empty where that is nothing."""
    known = None if finding.origin is None else finding.origin.values.get("since")
    return known.kind if isinstance(known, Note) else ""


def data_text(data: Data | None) -> str:
    """Where a value came in: ``batch[1], row 5 of batch 312 (dataset index 4,805, worker 1)``; empty if unknown."""
    if data is None:
        return ""
    name = data.name or ""
    if data.kind in ("numpy", "value"):
        made = f"made a tensor at {data.site.file}:{data.site.line}" if data.site is not None else "made a tensor"
        line = data.computed
        source = (
            f"{line.code} at {line.file}:{line.line}, "
            if line is not None and line.code and line.code != data.name
            else ""
        )
        return f"{name or 'a value'} ({source}{'a NumPy array, ' if data.kind == 'numpy' else ''}{made})"
    if data.kind == "file":
        return f"{name} in {data.file}" if name else f"the file {data.file}"
    return f"{name}, {_in_batch(data)}" if name and name != "batch" else _in_batch(data)


def _in_batch(data: Data) -> str:
    batch = f"batch {data.batch:,}" if data.batch is not None else "a batch"
    rows = [f"{row:,}" for row in data.rows]
    row = "" if not rows else f"row {rows[0]} of " if data.n_rows == 1 else f"rows {_some(rows, data.n_rows)} of "
    notes: list[str] = []
    if data.indices:
        told = [f"{i:,}" if isinstance(i, int) else str(i) for i in data.indices]
        count = max(data.n_rows, len(told))
        notes.append(f"dataset index {told[0]}" if count == 1 else f"dataset indices {_some(told, count)}")
    if data.worker is not None:
        notes.append(f"worker {data.worker}")
    if data.passed is not None and data.passed > 1:
        notes.append(f"pass {data.passed} over the data")
    known = f" ({', '.join(notes)})" if notes else ""
    return f"{row}{batch}{known}"


def _some(texts: list[str], count: int) -> str:
    shown = texts[:MOST_TOLD]
    more = count - len(shown)
    return f"{', '.join(shown)} and {more:,} more" if more > 0 else f"{', '.join(shown[:-1])} and {shown[-1]}"
