"""What everything in a report is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Number = float | int


class Record(BaseModel):
    """Frozen base of everything in a report; infinities and NaN are written as strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
