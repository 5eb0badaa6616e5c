"""A place in the user's source."""

from __future__ import annotations

from whynan.records.base import Record


class Site(Record):
    """A place in the user's source: 1-based lines and character columns, end exclusive."""

    file: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    code: str | None = None
    function: str | None = None
    module: str | None = None
