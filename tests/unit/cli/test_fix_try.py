"""``whynan fix --try``: the verdict of a diff of the user's own, and what cannot be judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

from tests.unit.cli import fixing
from tests.unit.cli.fixing import EDITS, PROGRAM, SITE, edited, fix, save, told
from whynan.cli.main import main
from whynan.errors import UsageError
from whynan.records import FixVerdict
from whynan.report.fixes.trial import make_schema, schema
from whynan.report.redaction import redacted
from whynan.verify.in_place.visits import Visit, Visits

MENDED = edited(PROGRAM, SITE, EDITS["log_softmax"])
VISITS = Visits("net.py", "0" * 64, "entropy", (Visit(6, {"p": [0.0, 1.0]}),))
VERDICTS = {
    "verified": FixVerdict(
        status="verified", forward_finite=True, backward_finite=True, healthy_elements=10871, healthy_worse=0,
        max_ulp=3, max_rel=2e-7,
        why="forward and backward finite; none of 10,871 healthy elements further from the truth",
    ),
    "distorting": FixVerdict(
        status="distorting", forward_finite=True, backward_finite=True, healthy_elements=480, healthy_worse=27,
        max_ulp=1200, max_rel=9e-4, why="moves 5.6% of healthy elements by up to 9e-4",
    ),
    "rejected": FixVerdict(
        status="rejected", forward_finite=True, backward_finite=False, healthy_elements=480, healthy_worse=243,
        max_ulp=float("inf"), max_rel=1.26, why="changes 50.6% of healthy elements, by up to 1.26",
    ),
    "unverified": FixVerdict(status="unverified", why="what was captured does not fail by itself"),
}  # fmt: skip


class Proving(ModuleType):
    """Stands in for the proof: keeps what it was asked, and gives a verdict."""

    def __init__(self) -> None:
        super().__init__("whynan.run.proof.local_proof")
        self.verdict = VERDICTS["verified"]
        self.asked: list[Any] = []

    def judge_edit(self, before: str, after: str, path: str, found: Any, visits: Any) -> FixVerdict:
        self.asked.append((before, after, path, found, visits))
        return self.verdict


@pytest.fixture(autouse=True)
def proving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proving:
    """The folder of a run with its report and its capsule, and a diff."""
    import whynan.capsule

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    fixing.standing_in(monkeypatch)
    (tmp_path / "net.py").write_text(PROGRAM)
    made = told(fix("clamp"))
    save(tmp_path, made)
    (tmp_path / "my.diff").write_text(fixing.patch("net.py", PROGRAM, MENDED))
    held = SimpleNamespace(finding=made.findings[0], report=made, visits=VISITS, source=PROGRAM)

    def open_capsule(folder: str) -> Any:
        if folder != "failure":
            raise UsageError(f"{folder} is no capsule", "give the folder that --capsule has made")
        return held

    monkeypatch.setattr(whynan.capsule, "open_capsule", open_capsule, raising=False)
    stand_in = Proving()
    stand_in.held = held
    monkeypatch.setitem(sys.modules, "whynan.run.proof.local_proof", stand_in)
    return stand_in


TRY = ["fix", "report.json", "--capsule", "failure", "--try", "my.diff"]
STATUSES = {"verified": 0, "distorting": 1, "rejected": 1, "unverified": 2}


@pytest.mark.parametrize("status", VERDICTS)
def test_the_verdict_is_told_and_gives_the_status(
    status: str, proving: Proving, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    proving.verdict = VERDICTS[status]
    assert main([*TRY, "--json", "verdict.json"]) == STATUSES[status]
    assert capsys.readouterr().out == snapshot
    document = json.loads(Path("verdict.json").read_text())
    Draft202012Validator(make_schema()).validate(document)
    assert (document["schema"], document["verdict"]["status"]) == ("whynan.trial/1", status)


def test_a_document_on_the_output_has_it_for_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*TRY, "--json", "-"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["change"] == "my.diff"
    assert err.startswith("verified: my.diff")


def test_it_is_judged_on_the_file_and_the_diff_and_nothing_is_edited(proving: Proving) -> None:
    assert main(TRY) == 0
    before, after, path, found, visits = proving.asked[0]
    assert (before, after, path, visits) == (PROGRAM, MENDED, "net.py", VISITS)
    assert found.rule == "WN206"
    assert Path("net.py").read_text() == PROGRAM


def test_code_that_a_capsule_holds_is_not_what_is_run(proving: Proving) -> None:
    proving.held.source = PROGRAM.replace("import torch", "import os")
    assert main(TRY) == 0
    assert proving.asked[0][0] == PROGRAM


def test_a_diff_that_is_in_the_file_already_is_taken_back(proving: Proving) -> None:
    Path("net.py").write_text(MENDED)
    assert main(TRY) == 0
    assert proving.asked[0][:2] == (PROGRAM, MENDED)


def test_a_diff_may_begin_at_the_root_of_a_repository(proving: Proving) -> None:
    Path("my.diff").write_text(fixing.patch("deep/project/net.py", PROGRAM, MENDED))
    assert main(TRY) == 0


def test_the_published_schema_is_that_of_the_record() -> None:
    assert schema() == make_schema()


# -- refused ---------------------------------------------------------------------------------------------------------


def nothing(_: Proving) -> None: ...


def no_such_file(_: Proving) -> None:
    Path("my.diff").unlink()


def no_diff(_: Proving) -> None:
    Path("my.diff").write_text("try log_softmax\n")


def not_text(_: Proving) -> None:
    Path("my.diff").write_bytes(b"\xff\xfe--- a")


def does_not_apply(_: Proving) -> None:
    Path("my.diff").write_text(fixing.patch("net.py", PROGRAM.replace("softmax", "sigmoid"), MENDED))


def of_two_files(_: Proving) -> None:
    change = fixing.patch("net.py", PROGRAM, MENDED)
    Path("my.diff").write_text(change + change)


def of_another_file(_: Proving) -> None:
    Path("my.diff").write_text(fixing.patch("other_net.py", PROGRAM, MENDED))


def of_a_file_that_changed(_: Proving) -> None:
    Path("net.py").write_text(f"{PROGRAM}# more\n")


def of_a_redacted_run(_: Proving) -> None:
    save(Path(), redacted(told(fix("clamp"))))


def of_another_run(proving: Proving) -> None:
    proving.held.finding = proving.held.finding.model_copy(update={"rule": "WN101"})


def without_visits(proving: Proving) -> None:
    proving.held.visits = None


def without_source(_: Proving) -> None:
    save(Path(), told(fix("clamp"), run={"sources": ()}))


def outside(proving: Proving) -> None:
    made = told(fix("clamp"), site=SITE.model_copy(update={"file": "../net.py"}))
    proving.held.finding = made.findings[0]
    save(Path(), made)


def at_no_place(proving: Proving) -> None:
    made = told(fix("clamp"), site=None)
    proving.held.finding = made.findings[0]
    save(Path(), made)


REFUSED: dict[str, tuple[Any, list[str]]] = {
    "no capsule": (nothing, TRY[:2] + TRY[4:]),
    "no such capsule": (nothing, [*TRY, "--capsule", "nothing"]),
    "a model for a program": (nothing, [*TRY[:-1], "repaired.onnx"]),
    "no such diff": (no_such_file, TRY),
    "a folder": (nothing, [*TRY[:-1], "."]),
    "no diff": (no_diff, TRY),
    "no text": (not_text, TRY),
    "a diff that does not apply": (does_not_apply, TRY),
    "two files": (of_two_files, TRY),
    "another file": (of_another_file, TRY),
    "a file that has changed": (of_a_file_that_changed, TRY),
    "a redacted run": (of_a_redacted_run, TRY),
    "the capsule of another run": (of_another_run, TRY),
    "a capsule without visits": (without_visits, TRY),
    "a report without source": (without_source, TRY),
    "a file outside": (outside, TRY),
    "no place": (at_no_place, TRY),
    "a choice": (nothing, [*TRY, "--choose", "1"]),
    "nowhere for the verdict": (nothing, [*TRY, "--json", "no/verdict.json"]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_judged_is_refused_with_one_line(
    kind: str, proving: Proving, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    prepare, arguments = REFUSED[kind]
    prepare(proving)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.rstrip("\n").isprintable()
    assert shown.err.replace(str(Path.cwd()), "HERE") == snapshot
    assert proving.asked == []
