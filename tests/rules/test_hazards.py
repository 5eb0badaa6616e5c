"""The table of hazards in the documentation says of each what whynan says of a program that runs into it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rules.hazards import PROGRAMS
from tests.selection import spread
from whynan import Report
from whynan.rules.catalogue import rules

TABLE = Path(__file__).parents[2] / "docs" / "hazards.md"
WITHOUT_PROGRAM = {
    99: "the rule of its birth",
    102: "none: they are no findings, and are counted",
    103: "the rule of its birth, else [WN810](rules/WN810.md)",
    110: "none, at the region's border: `TORCH_COMPILE_DISABLE=1` shows whether it is born without torch.compile",
    111: "none yet: what ranks compute is not compared",
}


def table() -> dict[int, str]:
    """The last column by number."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if re.match(r"\| \d", line)]
    cells = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
    assert all(len(row) == 4 and all(row[1:2] + row[3:]) for row in cells)
    return {int(row[0]): row[3] for row in cells}


SAID = table()


def rule_of(cell: str) -> str | None:
    """The rule that a cell links to."""
    found = re.fullmatch(r"\[(WN\w{3})\]\(rules/\1\.md\)", cell)
    return None if found is None else found[1]


def test_every_row_is_there_in_order_and_names_a_rule_or_says_that_there_is_none() -> None:
    assert list(SAID) == list(range(1, 115))
    assert {number: cell for number, cell in SAID.items() if rule_of(cell) is None} == WITHOUT_PROGRAM
    assert {rule_of(cell) for cell in SAID.values()} - {None} <= {rule.code for rule in rules()}
    assert set(PROGRAMS) == set(SAID) - set(WITHOUT_PROGRAM)


ALSO = {22: {"WN201"}, 92: {"WN201"}}
"""Beside 0 / 0 the logarithm of that variance of 0 is -Inf: with the quotient mended the loss would still be bad."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", spread(sorted(PROGRAMS), 4))
def test_a_program_of_the_row_gets_its_rule(number: int, explained: Callable[..., Report]) -> None:
    report = explained(PROGRAMS[number])
    told = (*report.findings, *report.damaging)
    found = {birth.rule for finding in told for birth in (finding, *finding.also)}
    assert found == {rule_of(SAID[number])} | ALSO.get(number, set())


@pytest.mark.parametrize("cell", ["WN201", "[WN201](rules/WN202.md)", "none yet"])
def test_what_links_to_no_page_names_no_rule(cell: str) -> None:
    assert rule_of(cell) is None
    assert rule_of("[WN201](rules/WN201.md)") == "WN201"
