"""The table of ranges for machines: names are a stranger's text, numbers are whole."""

from __future__ import annotations

import csv
import io

import pytest

from tests.unit.traces.ranges import RANGE
from whynan.records import Range
from whynan.report.ranges import to_csv

NAMES = {
    "plain/ü": "plain/ü",
    "\x1b[31mred\x1b]0;title\x07": "\\x1b[31mred\\x1b]0;title\\x07",
    "two\nlines\r": "two\\nlines\\r",
    "turned \u202e": "turned \\u202e",
    "=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0",
    "\t=1": "\\t=1",
}


@pytest.mark.parametrize("name", NAMES)
def test_of_a_name_all_can_be_seen(name: str) -> None:
    told = to_csv([Range.model_validate({**RANGE.model_dump(), "node": name, "value": name})])
    assert all(character.isprintable() or character == "\n" for character in told)
    (row,) = csv.DictReader(io.StringIO(told))
    assert (row["node"], row["value"]) == (NAMES[name], NAMES[name])
