"""Totals of the quality checks, printed at the end of a run, and what holds in each of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

TALLY, LISTED = "tally", "listed"


class Tally:
    """What one test adds to the totals; it travels with the test's report, from worker processes too."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties

    def count(self, name: str, good: int, total: int, unit: str = "") -> None:
        """Add to a total: `good` of `total`."""
        self._properties.append((TALLY, [name, good, total, unit]))

    def listed(self, name: str, line: str) -> None:
        """A line to print under a total: a miss, or what was left out and why."""
        self._properties.append((LISTED, [name, line]))


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """The running totals of the session."""
    return Tally(request.node.user_properties)


@pytest.fixture(autouse=True)
def steady() -> None:
    """One thread and one seed, so that two runs of a program give the same bits."""
    torch.set_num_threads(1)
    torch.manual_seed(0)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print every total, then what is listed under it."""
    good: Counter[str] = Counter()
    total: Counter[str] = Counter()
    units: dict[str, str] = {}
    lines: dict[str, dict[str, None]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) != "call":
                continue
            for key, value in report.user_properties:
                if key == TALLY:
                    name, right, of, unit = value
                    good[name] += right
                    total[name] += of
                    units[name] = unit
                elif key == LISTED:
                    lines.setdefault(value[0], {})[value[1]] = None
    if not total:
        return
    terminalreporter.section("quality")
    for name in sorted(total):
        terminalreporter.write_line(f"{name} {good[name]}/{total[name]} {units[name]}".rstrip())
        for line in lines.get(name, {}):
            terminalreporter.write_line(f"    {line}")
