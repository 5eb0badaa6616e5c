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
from whynan.config import Options
from whynan.errors import UsageError
from whynan.records import Note, Report
from whynan.replay.snapshot import restore_rng_document, rng_document
from whynan.report.json import to_json
from whynan.run.options import check
from whynan.run.proof import whole_program
from whynan.run.proof.proving import prove_fixes
from whynan.run.proof.reruns import RERUN, NoRerun, RunOnce
from whynan.run.proof.whole_program import PROVED, STEP, WHY, WholeProgramProof, key_of, likeness_of
from whynan.run.script import Beginning, Program

NOTHING = Note.create("run_again", why=Note.create("bore_nothing")).model_dump(mode="json")


def found() -> Report:
    """The report of a logarithm of 0, whose fixes nothing has tried."""

    def target(x: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.softmax(x, dim=0))

    return prove_fixes(
        whynan.explain(target, torch.tensor([1000.0, 0.0])), NoRerun(RunOnce(f"the program was run once: {RERUN}"))
    )


def proof(**options: Any) -> WholeProgramProof:
    made = WholeProgramProof(Beginning(Program("script", "bug.py")), Options(rerun=True, **options))
    made.begin()
    return made


def test_what_a_further_run_has_to_come_to_is_known() -> None:
    report, made = found(), proof()
    assert made.wants(report, report)
    wanted = made._wanted
    assert wanted is not None
    ((name, index, key, likeness),) = wanted["findings"]
    assert (name, index) == ("findings", 0)
    assert (key, likeness) == (key_of(report.findings[0]), likeness_of(report.findings[0]))
    assert wanted["places"] == {str(Path(__file__)): [report.findings[0].site.line]}  # type: ignore[union-attr]
    assert wanted["eager"] is False


def test_nothing_is_wanted_where_all_is_tried() -> None:
    report = found()
    (finding,) = report.findings
    verdict = finding.fixes[0].verdict.model_copy(update={"status": "rejected"})
    fixes = (finding.fixes[0].model_copy(update={"verdict": verdict}),)
    tried = report.model_copy(update={"findings": (finding.model_copy(update={"fixes": fixes}),)})
    assert not proof().wants(tried, tried)


def test_other_numbers_are_another_finding() -> None:
    (finding,) = found().findings
    other = finding.model_copy(update={"element": finding.element.model_copy(update={"index": (0,)})})
    assert key_of(other) != key_of(finding)
    assert key_of(finding.model_copy(update={"message": "of other values"})) != key_of(finding)


def test_generators_are_put_where_those_of_another_process_were() -> None:
    state = json.loads(json.dumps(rng_document()))
    drawn = torch.rand(3), random.random(), np.random.rand(3)
    restore_rng_document(state)
    again = torch.rand(3), random.random(), np.random.rand(3)
    assert torch.equal(drawn[0], again[0])
    assert drawn[1] == again[1]
    assert np.array_equal(drawn[2], again[2])


class Child:
    """What a further run leaves, and why it was ended."""

    def __init__(self, files: dict[str, str], ended: str | Exception | None) -> None:
        self.files, self.ended = files, ended
        self.environment: dict[str, str] = {}
        self.seconds = 0.0

    def run(self, command: list[str], environment: dict[str, str], *, cwd: str, seconds: float) -> str | None:
        self.environment, self.seconds = environment, seconds
        for name, text in self.files.items():
            Path(command[-1], name).write_text(text)
        if isinstance(self.ended, Exception):
            raise self.ended
        return self.ended


def _bettered(
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    ended: str | Exception | None = None,
    *,
    step: int | None = None,
    **options: Any,
) -> tuple[Report, Child]:
    """The report with what a further run has left; `step`: of a bad step that no replay has explained."""
    child, made, first = Child(files, ended), proof(**options), found()
    monkeypatch.setattr(whole_program, "run_child", child.run)
    if step is not None:
        made._wanted = {"kind": "step", "signature": {"step": step}}
    assert made.wants(first, first)
    return made.report(first), child


def test_proofs_take_the_place_of_what_was_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    fix = found().findings[0].fixes[0]
    sure = fix.model_copy(update={"verdict": fix.verdict.model_copy(update={"status": "verified", "why": "it holds"})})
    told = ["findings", 0, {"fixes": [sure.model_dump(mode="json")]}]
    document = {"why": {"kind": "births_identical", "values": {}}, "findings": [told], "notes": []}
    report, _ = _bettered(monkeypatch, {PROVED: json.dumps(document)})
    assert report.findings[0].fixes == (sure,)
    assert (report.run.replay.kind, report.run.replay.faithful, report.run.replay.typed_why) == (
        "rerun",
        True,
        Note.create("births_identical"),
    )


@pytest.mark.parametrize(
    ("files", "ended", "why"),
    [
        ({PROVED: json.dumps({"why": NOTHING})}, None, "run again, it bore nothing bad"),
        ({}, "it was interrupted", "run again, it was interrupted"),
        ({}, None, "run again, it was cut short"),
    ],
)
def test_a_run_that_proves_nothing_is_the_reason(
    files: dict[str, str], ended: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, _ = _bettered(monkeypatch, files, ended)
    assert {(fix.verdict.status, fix.verdict.why) for fix in report.findings[0].fixes} == {("unverified", why)}
    assert report.run.replay.faithful is False


def test_the_second_runs_report_takes_the_place_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    better = found()
    replay = better.run.replay.model_copy(update={"kind": "rerun", "faithful": True})
    better = better.model_copy(update={"run": better.run.model_copy(update={"replay": replay})})
    report, child = _bettered(monkeypatch, {STEP: to_json(better)}, step=4)
    assert (report.run.replay.kind, report.run.replay.faithful) == ("rerun", True)
    assert child.seconds >= whole_program.AT_LEAST
    # what it has made there has gone
    assert not Path(child.environment["TMPDIR"]).exists()


@pytest.mark.parametrize(
    ("ended", "files", "note"),
    [
        ("it was interrupted", {}, "it was interrupted"),
        (None, {WHY: "other losses than in the first run"}, "other losses than in the first run"),
        (None, {}, "it was cut short before it came to step 4"),
        ("it took more than 9 seconds", {STEP: "{}"}, "it took more than 9 seconds"),
    ],
)
def test_the_first_report_says_why_the_second_is_not_used(
    ended: str | None, files: dict[str, str], note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, _ = _bettered(monkeypatch, files, ended, step=4)
    assert f"a second run was not used: {note}" in report.coverage.notes


def test_who_was_interrupted_is_not_run_again() -> None:
    made, first = proof(), found()
    assert made.wants(first, first)
    report = made.report(first, interrupted=True)
    assert "no second run: the program was ended by a signal" in report.coverage.notes


def test_no_name_comes_into_a_private_report(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "it ended by SecretError before it came to step 4"
    report, _ = _bettered(monkeypatch, {WHY: why}, step=4, redact=True)
    assert "Secret" not in to_json(report)
    assert [n for n in report.coverage.notes if n.startswith("a second run was not used: ")]


def test_a_debugger_leaves_nothing_to_run_again() -> None:
    with pytest.raises(UsageError, match="--rerun"):
        check(Options(pdb=True, rerun=True))
