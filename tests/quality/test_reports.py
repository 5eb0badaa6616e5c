"""Public bug reports, restated as programs: verdict, line, rule, a proved change, one finding for one defect.

The scores are printed apart: of the two thirds that anybody may read who writes a rule or a fix, and of the third that
is kept unread.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.quality.conftest import Tally
from tests.quality.report_scores import FOLDER, QUESTIONS, answers, bug_reports, report_of, scored

REPORTS = bug_reports()
LEAST = {"verdict": 0.75, "line": 0.9, "rule": 0.75, "change": 0.2, "one finding": 0.6, "healthy": 0.95}
"""Of each part: a floor below what was first measured, so that a loss is noticed."""
SAMPLE = REPORTS[:1]


def part_of(slug_is_held_out: bool) -> str:
    return "reports, kept unread" if slug_is_held_out else "reports, read"


@pytest.mark.full
@pytest.mark.parametrize("held_out", [False, True], ids=["read", "unread"])
def test_public_bug_reports_are_answered(held_out: bool, tally: Tally, tmp_path: Path) -> None:
    chosen = [report for report in REPORTS if report.is_held_out is held_out]
    right = dict.fromkeys(QUESTIONS, 0)
    for report in chosen:
        found = scored(report, tmp_path / report.slug)
        for question in QUESTIONS:
            name = f"{part_of(held_out)}: {question}"
            tally.count(name, found[question], 1)
            right[question] += found[question]
            if not found[question] and not held_out:
                tally.listed(name, report.slug)
    missed = {q: f"{n}/{len(chosen)}" for q, n in right.items() if n < LEAST[q] * len(chosen)}
    assert not missed, missed


@pytest.mark.parametrize("report", SAMPLE, ids=lambda report: report.slug)
def test_a_sample_has_its_verdict_and_line(report: Any, tmp_path: Path) -> None:
    bug = report_of(report.bug, tmp_path / "bug")
    assert answers(report, bug)["verdict"]
    assert answers(report, bug)["line"]
    elsewhere = replace(report, lines=frozenset({1}), rules=frozenset({"WN999"}), defects=9)
    assert not any(answers(elsewhere, bug)[question] for question in ("line", "rule", "one finding"))


@pytest.mark.full
def test_a_healthy_program_has_no_right_answer(tmp_path: Path) -> None:
    """What is told of a program without a defect would be wrong of one that has it."""
    report = SAMPLE[0]
    healthy = report_of(report.healthy, tmp_path / "healthy")
    assert not any(answers(report, healthy).values())


def test_the_reports_are_complete() -> None:
    folders = sorted(path.parent for path in FOLDER.glob("*/bug.py"))
    assert [path.name for path in folders] == [report.slug for report in REPORTS]
    for report in REPORTS:
        lines = report.bug.splitlines()
        assert report.source.startswith("https://"), report.slug
        assert all(lines[line - 1].strip() for line in report.lines), report.slug
        assert report.healthy != report.bug, report.slug
