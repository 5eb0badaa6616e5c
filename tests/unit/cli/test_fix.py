"""``whynan fix``: what is listed, which fix is chosen, and what an edit leaves behind."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from tests.unit.cli import fixing
from tests.unit.cli.fixing import EDITS, FIXES, GRAPH, PROGRAM, SETTING, SITE, edited, fix, save, told
from tests.unit.report.programs import finding, report
from whynan.cli import fix as interrupts
from whynan.cli import fix as module
from whynan.cli.main import main, whynan
from whynan.records import Fix, FixVerdict, Member
from whynan.records.report import Further, StandIn
from whynan.report.redaction import redacted

UNWRITTEN = Fix(
    title="attention",
    kind="source",
    patch=None,
    verdict=FixVerdict(status="unverified", why="the mask is not a name"),
)
MENDED = edited(PROGRAM, SITE, EDITS["log_softmax"])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the program ran in, with the report of the run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    fixing.standing_in(monkeypatch)
    (tmp_path / "net.py").write_text(PROGRAM)
    save(tmp_path, told(*FIXES))
    return tmp_path


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Somebody sits at a terminal: ``says`` is what they answer, an exception or whether they agree."""
    said: dict[str, Any] = {"says": True, "asked": []}

    def agreed(question: str) -> bool:
        said["asked"].append(question)
        if callable(said["says"]):
            return said["says"]()
        return said["says"]

    monkeypatch.setattr(module, "_at_a_terminal", lambda: True)
    monkeypatch.setattr(interrupts, "agreed", agreed)
    return said


def files(here: Path) -> list[str]:
    return sorted(path.name for path in here.iterdir())


# -- the list --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [100, 40])
def test_the_fixes_are_listed_with_their_verdicts(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["fix", "report.json"]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= width for line in out.split("\n"))
    assert out == snapshot


ABSORBED = finding(fate="absorbed", severity="info", fixes=(fix("log_softmax"),))
NOTHING = {
    "clean": report(verdict="clean"),
    "absorbed": report(verdict="clean", absorbed=(ABSORBED,), absorbed_count=1),
    "no fix is known": report(finding(rule="WN000", name="unexplained")),
    "two findings without fixes": report(finding(rule="WN000"), finding(rule="WN999")),
}


@pytest.mark.parametrize("name", NOTHING)
def test_it_is_said_why_there_are_none(
    name: str, here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    save(here, NOTHING[name])
    assert main(["fix", "report.json"]) == 0
    assert capsys.readouterr().out == snapshot
    assert main(["fix", "report.json", "--apply", "--yes"]) == 2


def test_a_long_change_is_cut_in_the_list_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = "".join(f"x = {number}\n" for number in range(100))
    after = "".join(f"y = {number}\n" for number in range(100))
    save(here, told(fix("log_softmax", patch=fixing.patch("net.py", program, after))))
    assert main(["fix", "report.json"]) == 0
    assert "more lines" in capsys.readouterr().out


def test_where_no_fix_is_verified_none_is_recommended(
    here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    save(here, told(fix("clamp"), SETTING, UNWRITTEN))
    assert main(["fix", "report.json"]) == 0
    assert capsys.readouterr().out == snapshot


def test_a_redacted_report_says_what_it_lacks(
    here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    save(here, redacted(told(fix("log_softmax"))))
    assert main(["fix", "report.json"]) == 0
    assert capsys.readouterr().out == snapshot


# -- an edit ---------------------------------------------------------------------------------------------------------


def test_the_best_verified_fix_is_made(
    here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    save(here, told(fix("clamp"), fix("log_softmax")))
    assert main(["fix", "report.json", "--apply", "--yes"]) == 0
    assert (here / "net.py").read_text() == MENDED
    assert (here / "net.py.orig").read_text() == PROGRAM
    assert files(here) == ["net.py", "net.py.orig", "report.json"]
    assert capsys.readouterr().out == snapshot


def test_a_fix_is_made_once_the_user_agrees(
    here: Path, at_a_terminal: dict[str, Any], capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert main(["fix", "report.json", "--apply"]) == 0
    assert at_a_terminal["asked"] == ["Edit net.py?"]
    assert (here / "net.py").read_text() == MENDED
    assert capsys.readouterr().out == snapshot


def test_without_the_agreement_nothing_is_changed(
    here: Path, at_a_terminal: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    at_a_terminal["says"] = False
    assert main(["fix", "report.json", "--apply"]) == 0
    assert capsys.readouterr().out.endswith("nothing was changed\n")
    assert (here / "net.py").read_text() == PROGRAM
    assert files(here) == ["net.py", "report.json"]


def test_a_question_that_is_broken_off_changes_nothing(
    here: Path, at_a_terminal: dict[str, Any], capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    def broken_off() -> bool:
        raise KeyboardInterrupt

    at_a_terminal["says"] = broken_off
    assert main(["fix", "report.json", "--apply"]) == 130
    assert capsys.readouterr().err == snapshot
    assert files(here) == ["net.py", "report.json"]


def test_a_distorting_fix_is_made_where_it_is_chosen(here: Path) -> None:
    assert main(["fix", "report.json", "--apply", "--choose", "2", "--yes"]) == 0
    assert (here / "net.py").read_text() == edited(PROGRAM, SITE, EDITS["clamp"])


def test_a_second_application_changes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    main(["fix", "report.json", "--apply", "--yes"])
    capsys.readouterr()
    assert main(["fix", "report.json", "--apply", "--yes"]) == 0
    assert capsys.readouterr().err == snapshot
    assert (here / "net.py").read_text() == MENDED
    assert files(here) == ["net.py", "net.py.orig", "report.json"]


def test_a_backup_takes_the_place_of_none(here: Path) -> None:
    (here / "net.py.orig").write_text("mine")
    main(["fix", "report.json", "--apply", "--yes"])
    assert (here / "net.py.orig").read_text() == "mine"
    assert (here / "net.py.orig.1").read_text() == PROGRAM


@pytest.mark.parametrize("mode", [0o644, 0o755, 0o600])
def test_permissions_stay(mode: int, here: Path) -> None:
    (here / "net.py").chmod(mode)
    main(["fix", "report.json", "--apply", "--yes"])
    for name in ("net.py", "net.py.orig"):
        assert stat.S_IMODE((here / name).stat().st_mode) == mode


CODINGS = {
    "line ends of Windows": ("utf-8", PROGRAM.replace("\n", "\r\n")),
    "a declared encoding": ("latin-1", f"# coding: latin-1\n# naïve\n{PROGRAM}"),
    "a byte order mark": ("utf-8-sig", PROGRAM),
    "no line end at the end": ("utf-8", PROGRAM.rstrip("\n")),
}


@pytest.mark.parametrize("name", CODINGS)
def test_encoding_and_line_ends_stay(name: str, here: Path) -> None:
    encoding, program = CODINGS[name]
    line = next(number for number, text in enumerate(program.split("\n"), 1) if "p.log()" in text)
    site = SITE.model_copy(update={"line": line, "end_line": line})
    (here / "net.py").write_bytes(program.encode(encoding))
    save(here, told(fix("log_softmax", program, site), site=site, program=program.encode(encoding)))
    assert main(["fix", "report.json", "--apply", "--yes"]) == 0
    assert (here / "net.py").read_bytes() == edited(program, site, EDITS["log_softmax"]).encode(encoding)


def test_a_file_in_a_folder_is_found_from_where_the_program_ran(here: Path) -> None:
    (here / "src" / "deep").mkdir(parents=True)
    (here / "net.py").rename(here / "src" / "deep" / "net.py")
    site = SITE.model_copy(update={"file": "src/deep/net.py"})
    save(here, told(fix("log_softmax", site=site), site=site))
    assert main(["fix", "report.json", "--apply", "--yes"]) == 0
    assert (here / "src" / "deep" / "net.py").read_text() == MENDED
    assert files(here / "src" / "deep") == ["net.py", "net.py.orig"]


def test_an_absolute_name_of_a_file_inside_is_as_good(here: Path) -> None:
    site = SITE.model_copy(update={"file": str(here / "net.py")})
    save(here, told(fix("log_softmax", site=site), site=site))
    assert main(["fix", "report.json", "--apply", "--yes"]) == 0
    assert (here / "net.py").read_text() == MENDED


# -- a patch ---------------------------------------------------------------------------------------------------------


def test_a_patch_is_written_that_git_applies(here: Path) -> None:
    assert main(["fix", "report.json", "--patch", "fix.patch"]) == 0
    assert (here / "net.py").read_text() == PROGRAM
    subprocess.run(["git", "apply", "fix.patch"], cwd=here, check=True)
    assert (here / "net.py").read_text() == MENDED


def test_a_patch_of_a_file_in_another_encoding_is_in_it(here: Path) -> None:
    encoding, program = CODINGS["a declared encoding"]
    site = SITE.model_copy(update={"line": 8, "end_line": 8})
    program = program.replace("def entropy", "# naïve\ndef entropy").replace("# naïve\nimport", "import")
    (here / "net.py").write_bytes(program.encode(encoding))
    save(here, told(fix("log_softmax", program, site), site=site, program=program.encode(encoding)))
    assert main(["fix", "report.json", "--patch", "fix.patch"]) == 0
    subprocess.run(["git", "apply", "fix.patch"], cwd=here, check=True)
    assert (here / "net.py").read_bytes() == edited(program, site, EDITS["log_softmax"]).encode(encoding)


def test_a_patch_has_the_output_for_itself(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["fix", "report.json", "--patch", "-"]) == 0
    assert capfd.readouterr().out == fixing.patch("net.py", PROGRAM, MENDED)
    assert files(here) == ["net.py", "report.json"]


# -- a model ---------------------------------------------------------------------------------------------------------


def test_the_best_verified_fix_of_a_model_is_made(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fix", "report.json", "--output", "fixed.onnx"]) == 0
    assert (here / "fixed.onnx").read_text() == "train.py with fix None"
    assert capsys.readouterr().out == "fixed.onnx is the model with LogSoftmax\n"
    assert main(["fix", "report.json", "--output", "chosen.onnx", "--choose", "5"]) == 0
    assert (here / "chosen.onnx").read_text() == "train.py with fix 5"


def test_help_has_examples(snapshot: SnapshotAssertion) -> None:
    result = CliRunner().invoke(whynan, ["fix", "--help"], prog_name="whynan", terminal_width=100)
    assert result.exit_code == 0
    assert result.output == snapshot


def test_the_hash_of_the_report_may_be_in_capitals(here: Path) -> None:
    made = told(fix("log_softmax"))
    digest = hashlib.sha256(PROGRAM.encode()).hexdigest().upper()
    save(here, made.model_copy(update={"run": made.run.model_copy(update={"sources": (_source(digest),)})}))
    assert main(["fix", "report.json", "--apply", "--yes"]) == 0


def _source(digest: str) -> Any:
    from whynan.records.report import Source

    return Source(file="net.py", sha256=digest)


# -- refused ---------------------------------------------------------------------------------------------------------

APPLY = ["--apply", "--yes"]


def without_source(here: Path) -> None:
    save(here, told(*FIXES, run={"sources": ()}))


def of_another_version(here: Path) -> None:
    (here / "net.py").write_text(f"{PROGRAM}# more\n")


def elsewhere(here: Path) -> None:
    (here / "net.py").unlink()


def at_no_place(here: Path) -> None:
    save(here, told(*FIXES, site=None))


def in_a_cell(here: Path) -> None:
    save(here, told(*FIXES, site=SITE.model_copy(update={"file": "<ipython-input-3>"})))


def read_only(here: Path) -> None:
    (here / "net.py").chmod(0o444)


def for_other_eyes(here: Path) -> None:
    save(here, redacted(told(*FIXES)))


def none_verified(here: Path) -> None:
    save(here, told(fix("clamp")))


def altered(here: Path) -> None:
    hostile = fixing.patch("net.py", PROGRAM, f"import os; os.system('rm -rf ~')\n{PROGRAM}")
    save(here, told(fix("log_softmax", patch=hostile)))


def of_an_unknown_rule(here: Path) -> None:
    made = told(*FIXES)
    save(here, made.model_copy(update={"findings": (made.findings[0].model_copy(update={"rule": "WN999"}),)}))


def no_report(here: Path) -> None:
    (here / "report.json").write_text("why is it NaN?")


def in_no_encoding(here: Path) -> None:
    content = b"# coding: nothing\n" + PROGRAM.encode()
    (here / "net.py").write_bytes(content)
    save(here, told(*FIXES, program=content))


def patch_there(here: Path) -> None:
    (here / "fix.patch").write_text("mine")


def model_there(here: Path) -> None:
    (here / "fixed.onnx").write_text("mine")


def link_there(here: Path) -> None:
    (here / "fixed.onnx").symlink_to("net.py")


def not_written(here: Path) -> None:
    save(here, told(*FIXES, UNWRITTEN))


def nothing_special(here: Path) -> None: ...


REFUSED: dict[str, tuple[Any, list[str]]] = {
    "a report without source": (without_source, APPLY),
    "another version of the file": (of_another_version, APPLY),
    "another version of the file, for a patch": (of_another_version, ["--patch", "fix.patch"]),
    "no such file": (elsewhere, APPLY),
    "no place": (at_no_place, APPLY),
    "a cell of a notebook": (in_a_cell, APPLY),
    "a read-only file": (read_only, APPLY),
    "a redacted report": (for_other_eyes, APPLY),
    "none verified": (none_verified, APPLY),
    "an altered patch": (altered, APPLY),
    "no report": (no_report, APPLY),
    "no such encoding": (in_no_encoding, APPLY),
    "an existing patch": (patch_there, ["--patch", "fix.patch"]),
    "nowhere for a patch": (nothing_special, ["--patch", "no/fix.patch"]),
    "a number too large": (nothing_special, [*APPLY, "--choose", "6"]),
    "a number too small": (nothing_special, [*APPLY, "--choose", "0"]),
    "no number": (nothing_special, [*APPLY, "--choose", "one"]),
    "a rejected fix": (nothing_special, [*APPLY, "--choose", "3"]),
    "a fix that could not be written": (not_written, [*APPLY, "--choose", "6"]),
    "a setting": (nothing_special, [*APPLY, "--choose", "4"]),
    "a change of the model": (nothing_special, [*APPLY, "--choose", "5"]),
    "a change of the source for a model": (nothing_special, ["--output", "fixed.onnx", "--choose", "1"]),
    "an existing model": (model_there, ["--output", "fixed.onnx"]),
    "a link to a model": (link_there, ["--output", "fixed.onnx"]),
    "a folder for a model": (nothing_special, ["--output", "."]),
    "no fix of the model": (none_verified, ["--output", "fixed.onnx"]),
    "nobody to ask": (nothing_special, ["--apply"]),
    "two things": (nothing_special, ["--apply", "--patch", "fix.patch"]),
    "an answer to no question": (nothing_special, ["--yes"]),
    "a verdict of nothing": (nothing_special, ["--json", "verdict.json"]),
    "a capsule for nothing": (nothing_special, ["--capsule", "failure"]),
    "inputs for nothing": (nothing_special, ["-i", "batch.npz"]),
    "a seed for nothing": (nothing_special, ["--random", "0"]),
    "a number for nothing": (nothing_special, ["--choose", "1"]),
    "no report at all": (nothing_special, ["--help-me"]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_done_is_refused_with_one_line(
    kind: str, here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    prepare, options = REFUSED[kind]
    prepare(here)
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    assert main(["fix", "report.json", *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.rstrip("\n").isprintable()
    assert shown.err.replace(str(here), "HERE") == snapshot
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


def test_the_report_of_checkpoints_has_no_fixes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from whynan.records.checkpoint import Checkpoints
    from whynan.report.postmortem.text import to_json

    (here / "report.json").write_text(to_json(Checkpoints(verdict="clean", checkpoints=())))
    assert main(["fix", "report.json"]) == 2
    assert "no report of a run" in capsys.readouterr().err


def test_an_unknown_rule_has_no_edits(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "whynan.fixes.python.consistent_candidates", lambda text, found, intents: asked.append(intents) or []
    )
    of_an_unknown_rule(here)
    assert main(["fix", "report.json", *APPLY]) == 2
    assert asked == [()]


def test_the_edits_are_those_of_the_rule(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whynan.rules.catalogue import rules
    from whynan.rules.intents import tried_last

    asked: list[Any] = []

    def candidates(text: str, found: Any, intents: Any) -> Any:
        asked.append(intents)
        return fixing.candidates(text, found, intents)

    monkeypatch.setattr("whynan.fixes.python.consistent_candidates", candidates)
    assert main(["fix", "report.json", *APPLY]) == 0
    fixes = next(rule.fixes for rule in rules() if rule.code == "WN206")
    assert asked == [(*fixes, *tried_last(fixes))]


def test_a_graph_is_no_source(here: Path) -> None:
    save(here, told(GRAPH))
    assert main(["fix", "report.json", *APPLY]) == 2


# -- several edits ---------------------------------------------------------------------------------------------------

TWICE = edited(PROGRAM, SITE, EDITS["clamp"]).replace("torch.zeros(3)", "torch.zeros(3).double()")
CALL = {"line": 9, "column": 15, "end_line": 9, "end_column": 29, "code": "torch.zeros(3)", "function": None}
LEFT = Further(rule="WN101", birth="invalid", phase="forward", op="aten.div.Tensor", site=SITE.model_copy(update=CALL))


def in_two_steps(text: str, found: Any, intents: Any) -> Any:
    """The edits of the finding, and of what the first of them leaves."""
    if found.rule == "WN206":
        return fixing.candidates(text, found, intents)
    assert (found.rule, found.site, found.birth) == (LEFT.rule, LEFT.site, LEFT.birth)
    after = edited(text, found.site, "torch.zeros(3).double()")
    return [replace(made, edited=after) for made in fixing.candidates(text, found, intents)[1:2]]


def test_a_fix_of_several_edits_is_made_of_each_rule_at_its_place(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whynan.fixes.python.consistent_candidates", in_two_steps)
    whole = fix("log_softmax", patch=fixing.patch("net.py", PROGRAM, TWICE), further=(LEFT,))
    save(here, told(whole))
    assert main(["fix", "report.json", *APPLY]) == 0
    assert (here / "net.py").read_text() == TWICE


def test_half_of_a_fix_is_not_made(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whynan.fixes.python.consistent_candidates", in_two_steps)
    save(here, told(fix("log_softmax", patch=fixing.patch("net.py", PROGRAM, TWICE))))
    assert main(["fix", "report.json", *APPLY]) == 2
    assert (here / "net.py").read_text() == PROGRAM


# -- several files ---------------------------------------------------------------------------------------------------


OTHER = SITE.model_copy(update={"file": "loss.py"})


@pytest.fixture
def in_two_files(here: Path) -> dict[str, str]:
    """The report of a fix that changes two files, in each of which a birth of the cause stands; and these files."""
    (here / "loss.py").write_text(PROGRAM)
    digest = hashlib.sha256(PROGRAM.encode()).hexdigest()
    change = fix("log_softmax")
    patch = f"{change.patch}{fixing.patch('loss.py', PROGRAM, edited(PROGRAM, OTHER, EDITS['log_softmax']))}"
    member = Member(site=OTHER, phase="forward", op="aten.log.default", rule="WN206")
    found = finding(
        rule="WN206",
        name="log-of-softmax",
        site=SITE,
        also=(member,),
        fixes=(change.model_copy(update={"patch": patch}),),
    )
    sources = ({"file": "net.py", "sha256": digest}, {"file": "loss.py", "sha256": digest})
    save(here, report(found, run={"sources": sources}))
    return {name: (here / name).read_text() for name in files(here)}


@pytest.mark.usefixtures("in_two_files")
def test_a_fix_of_two_files_is_made_in_both(here: Path, snapshot: SnapshotAssertion) -> None:
    result = CliRunner().invoke(whynan, ["fix", "report.json", "--apply", "--yes"])
    assert (result.exit_code, result.output) == (0, snapshot)
    for name in ("net.py", "loss.py"):
        assert (here / name).read_text() == MENDED
        assert (here / f"{name}.orig").read_text() == PROGRAM
    # once more: it is there
    result = CliRunner().invoke(whynan, ["fix", "report.json", "--apply", "--yes"])
    assert "is in the file already" in result.output


@pytest.mark.usefixtures("in_two_files")
def test_its_patch_has_both(here: Path) -> None:
    assert main(["fix", "report.json", "--patch", "both.patch"]) == 0
    subprocess.run(["git", "apply", "both.patch"], cwd=here, check=True)
    assert (here / "net.py").read_text() == (here / "loss.py").read_text() == MENDED


def test_where_the_second_file_cannot_be_written_nothing_is_changed(
    in_two_files: dict[str, str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace, done = os.replace, []

    def full(old: str, new: str, **folders: Any) -> None:
        done.append(new)
        if len(done) == 2:
            raise OSError(28, "No space left on device")
        replace(old, new, **folders)

    monkeypatch.setattr(os, "replace", full)
    assert main(["fix", "report.json", "--apply", "--yes"]) == 2
    assert done[:2] == ["net.py", "loss.py"]
    assert "loss.py cannot be edited (No space left on device)" in capsys.readouterr().err
    assert {name: (here / name).read_text() for name in files(here)} == in_two_files


def test_where_one_of_two_files_has_changed_nothing_is(
    in_two_files: dict[str, str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "loss.py").write_text("x = 1\n")
    assert main(["fix", "report.json", "--apply", "--yes"]) == 2
    assert "loss.py is not what it was during the run" in capsys.readouterr().err
    assert (here / "net.py").read_text() == in_two_files["net.py"]
    # half of the change is none that was proved
    (here / "loss.py").write_text(MENDED)
    assert main(["fix", "report.json", "--apply", "--yes"]) == 2
    assert files(here) == sorted(in_two_files)


# -- a pull request --------------------------------------------------------------------------------------------------


GIVEN = StandIn(
    output=0, lack="unknown", count=3, total=96, least=-87.3, greatest=-87.3, exact_least=-96.5, exact_greatest=-90.0
)


@pytest.mark.parametrize("status", ["verified", "guarded"])
def test_a_pull_request_has_the_bug_the_mechanism_the_change_and_the_proof(
    status: Any, here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    verdict = FixVerdict(
        status=status,
        forward_finite=True,
        backward_finite=True,
        healthy_elements=10_871,
        healthy_worse=0,
        max_ulp=2.0,
        max_rel=1.2e-7,
        stand_ins=(GIVEN,) if status == "guarded" else (),
    )
    save(here, told(fix("log_softmax", verdict=verdict)))
    assert main(["fix", "report.json", "--pr"]) == 0
    assert capsys.readouterr() == (snapshot, "")


def test_without_a_proved_fix_there_is_no_pull_request(
    here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    save(here, told(fix("clamp"), SETTING))
    assert [main(["fix", "report.json", "--pr"]), main(["fix", "report.json", "--pr", "--choose", "1"])] == [2, 2]
    save(here, report())
    assert main(["fix", "report.json", "--pr"]) == 2
    assert capsys.readouterr() == ("", snapshot)


def test_it_is_not_made_together_with_an_edit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fix", "report.json", "--pr", "--apply"]) == 2
    assert capsys.readouterr().err == "whynan: --apply and --pr ask for two things: give one of them\n"


def test_of_a_redacted_report_there_is_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(here, redacted(told(*FIXES)))
    assert main(["fix", "report.json", "--pr"]) == 2
    assert "--redact" in capsys.readouterr().err
