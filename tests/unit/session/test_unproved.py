"""What is left for further runs of a program, and what becomes of their answers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whynan
from whynan.capture.torch.state import restore_stored, stored
from whynan.config import Options
from whynan.errors import UsageError
from whynan.records import Report
from whynan.report.json import read
from whynan.session.checking import check
from whynan.session.leaving import FIRST, WANTED
from whynan.session.proofs import with_proofs
from whynan.session.proving import RERUN, Once, proved
from whynan.session.rerunning import PROVED
from whynan.session.unproved import Unproved, key_of, likeness_of

ENVIRONMENT = {"_WHYNAN_RUN": json.dumps({"command": "bug.py", "options": {}, "hashseed": None})}


def found() -> Report:
    """The report of a logarithm of 0, whose fixes nothing has tried."""

    def target(x: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.softmax(x, dim=0))

    return proved(whynan.explain(target, torch.tensor([1000.0, 0.0])), Once(f"the program was run once: {RERUN}"))


def left(folder: Path, report: Report) -> dict[str, Any] | None:
    unproved = Unproved(Options(rerun=True), str(folder), 0.0)
    unproved.begin()
    return json.loads((folder / WANTED).read_text()) if unproved.leave(report, report) else None


def test_what_a_further_run_has_to_come_to_is_left(tmp_path: Path) -> None:
    report = found()
    wanted = left(tmp_path, report)
    assert wanted is not None
    ((name, index, key, likeness),) = wanted["findings"]
    assert (name, index) == ("findings", 0)
    assert (key, likeness) == (key_of(report.findings[0]), likeness_of(report.findings[0]))
    assert wanted["places"] == {str(Path(__file__)): [report.findings[0].site.line]}  # type: ignore[union-attr]
    assert (wanted["eager"], read((tmp_path / FIRST).read_bytes()).findings[0].rule) == (False, "WN206")


def test_nothing_is_left_where_all_is_tried(tmp_path: Path) -> None:
    report = found()
    (finding,) = report.findings
    verdict = finding.fixes[0].verdict.model_copy(update={"status": "rejected"})
    fixes = (finding.fixes[0].model_copy(update={"verdict": verdict}),)
    tried = report.model_copy(update={"findings": (finding.model_copy(update={"fixes": fixes}),)})
    assert left(tmp_path, tried) is None
    assert not (tmp_path / FIRST).exists()


def test_other_numbers_are_another_finding() -> None:
    (finding,) = found().findings
    other = finding.model_copy(update={"element": finding.element.model_copy(update={"index": (0,)})})
    assert key_of(other) != key_of(finding)
    assert key_of(finding.model_copy(update={"message": "of other values"})) != key_of(finding)


def test_generators_are_put_where_those_of_another_process_were() -> None:
    state = json.loads(json.dumps(stored()))
    drawn = torch.rand(3), random.random(), np.random.rand(3)
    restore_stored(state)
    again = torch.rand(3), random.random(), np.random.rand(3)
    assert torch.equal(drawn[0], again[0])
    assert drawn[1] == again[1]
    assert np.array_equal(drawn[2], again[2])


def _merged(folder: Path, document: dict[str, Any] | None, ended: str | None = None, **options: Any) -> Report:
    """The report with what a further run has left, or with why it was ended."""
    wanted = left(folder, found())
    assert wanted is not None

    def run(_command: object, _environment: object, _seconds: float) -> str | None:
        if document is not None:
            (folder / PROVED).write_text(json.dumps(document))
        return ended

    first = read((folder / FIRST).read_bytes())
    return with_proofs(first, wanted, str(folder), [], ENVIRONMENT, Options(**options), run=run, seconds=60.0)


def test_proofs_take_the_place_of_what_was_not_proved(tmp_path: Path) -> None:
    fix = found().findings[0].fixes[0]
    sure = fix.model_copy(update={"verdict": fix.verdict.model_copy(update={"status": "verified", "why": "it holds"})})
    told = ["findings", 0, {"fixes": [sure.model_dump(mode="json")]}]
    report = _merged(tmp_path, {"why": "identical", "findings": [told], "notes": []})
    assert report.findings[0].fixes == (sure,)
    assert (report.run.replay.kind, report.run.replay.faithful, report.run.replay.why) == ("rerun", True, "identical")


@pytest.mark.parametrize(
    ("document", "ended", "why"),
    [
        ({"why": "run again, it bore nothing bad"}, None, "run again, it bore nothing bad"),
        (None, "it was interrupted", "run again, it was interrupted"),
        (None, None, "run again, it was cut short"),
    ],
)
def test_a_run_that_proves_nothing_is_the_reason(
    document: dict[str, Any] | None, ended: str | None, why: str, tmp_path: Path
) -> None:
    report = _merged(tmp_path, document, ended)
    assert {(fix.verdict.status, fix.verdict.why) for fix in report.findings[0].fixes} == {("unverified", why)}
    assert report.run.replay.faithful is False


def test_a_debugger_leaves_nothing_to_run_again() -> None:
    with pytest.raises(UsageError, match="--rerun"):
        check(Options(pdb=True, rerun=True))
