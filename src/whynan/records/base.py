"""What everything in a report is, and a place in the source."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Number = float | int


class Record(BaseModel):
    """Frozen base of everything in a report; infinities and NaN are written as strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


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
