"""The verdict of a fix that the user brought, as one validated document (``whynan.trial/1``)."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from whynan.records.base import Record
from whynan.records.report import FixVerdict, Site


class Trial(Record):
    """What was tried, for which finding, and what proof found of it.

    ``change`` is the file that the user gave: a diff, or a repaired model. ``rule``, ``name``, ``site`` and ``node``
    are those of the finding that it is to mend.
    """

    schema_: Literal["whynan.trial/1"] = Field(default="whynan.trial/1", alias="schema")
    change: str
    rule: str
    name: str
    site: Site | None
    node: str | None = None
    verdict: FixVerdict

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", populate_by_name=True)
