"""``whynan report``: a report or a trace told again, on a machine that has nothing of what the run needed."""

from __future__ import annotations

import importlib
import json
import linecache
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from tests.unit.analysis.facts import birth, sink, trace
from tests.unit.report.programs import REPORTS, finding, report
from tests.unit.traces.folders import change, recorded
from whynan.cli.main import main, whynan
from whynan.cli.report import KINDS
from whynan.errors import UsageError
from whynan.report.json import parse_report, to_json
from whynan.run.suppressions import comments_of

ROOT = Path(__file__).parents[3]
FORWARD = "forward"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files are named relative to the working directory, so that messages are the same everywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    comments_of.cache_clear()
    linecache.clearcache()
    return tmp_path


@pytest.fixture
def saved(here: Path) -> str:
    """A saved report with an error."""
    (here / "report.json").write_text(to_json(REPORTS[FORWARD]), encoding="utf-8")
    return "report.json"


def save(here: Path, made: Any, name: str = "report.json") -> str:
    """A report in a file."""
    (here / name).write_text(to_json(made), encoding="utf-8")
    return name


def test_a_saved_report_is_shown_as_it_was(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["report", saved])
    assert capsys.readouterr().out == f"{REPORTS[FORWARD]}\n"
    assert status == 1


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_a_document_on_the_output_has_it_for_itself(
    saved: str, name: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", saved, "--json", name]) == 1
    out, err = capfd.readouterr()
    assert (out, err) == (to_json(REPORTS[FORWARD]) + "\n", f"{REPORTS[FORWARD]}\n")
    assert not (here / "-").exists()


def test_the_trace_of_a_run_is_shown(
    here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    recorded(here / "t")
    assert main(["report", "t"]) == 1
    assert capsys.readouterr().out == snapshot


def test_a_trace_that_its_run_did_not_end_is_shown_up_to_where_it_goes(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(here / "t", finished=False)
    assert main(["report", "t"]) == 1
    out = capsys.readouterr().out
    assert "this trace is unfinished" in out
    assert "--on-nonfinite" not in out


def test_all_tells_of_what_did_no_harm(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(here / "t", facts=trace([birth(1)], []))
    main(["report", "t"])
    short = capsys.readouterr().out
    main(["report", "t", "--all"])
    assert "net.py:1:5" not in short
    assert "net.py:1:5" in capsys.readouterr().out


def test_quiet_prints_nothing_and_the_status_tells(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", saved, "--quiet"]) == 1
    assert capsys.readouterr().out == ""


def test_the_document_of_a_trace_is_that_of_a_report(here: Path) -> None:
    recorded(here / "t")
    assert main(["report", "t", "--quiet", "--json", "report.json"]) == 1
    made = parse_report((here / "report.json").read_bytes())
    assert (made.verdict, len(made.findings)) == ("nonfinite", 2)
    assert main(["report", "report.json", "--quiet", "--json", "again.json"]) == 1
    assert (here / "again.json").read_bytes() == (here / "report.json").read_bytes()


# -- exit status -----------------------------------------------------------------------------------------------------

CLEAN = report(verdict="clean", run={"exit_status": {"script": 0, "whynan": 0}})
WARNED = report(
    verdict="damaged",
    run={"exit_status": {"script": 0, "whynan": 0}},
    damaging=(finding(severity="warning", fate="damaging"),),
)
OBSERVED = report(finding(severity="warning"), verdict="damaged", run={"exit_status": {"script": 0, "whynan": 0}})


@pytest.mark.parametrize(
    ("made", "status", "strict"),
    [(CLEAN, 0, 0), (WARNED, 0, 1), (OBSERVED, 0, 1), (REPORTS[FORWARD], 1, 1)],
    ids=["clean", "damaged", "observed", "nonfinite"],
)
def test_the_status_is_that_of_the_report_and_strict_counts_warnings(
    made: Any, status: int, strict: int, here: Path
) -> None:
    save(here, made)
    assert main(["report", "report.json", "--quiet"]) == status
    assert main(["report", "report.json", "--quiet", "--strict"]) == strict


def test_a_status_that_no_shell_knows_is_1(here: Path) -> None:
    save(here, report(finding(), run={"exit_status": {"script": 0, "whynan": 256}}))
    assert main(["report", "report.json", "--quiet"]) == 1


def test_options_of_the_directory_hold(here: Path, saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "pyproject.toml").write_text("[tool.whynan]\nquiet = true\n")
    assert main(["report", saved]) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("schema", KINDS)
def test_every_kind_of_document_has_its_reader(schema: str) -> None:
    module, function = KINDS[schema].split(":")
    with pytest.raises(UsageError):
        getattr(importlib.import_module(module), function)(json.dumps({"schema": schema}).encode())


# -- for other eyes --------------------------------------------------------------------------------------------------


def test_redacted_nothing_private_is_shown_or_written(
    here: Path, saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", saved, "--redact", "--json", "public.json"]) == 1
    for text in (capsys.readouterr().out, (here / "public.json").read_text()):
        assert "net.py" not in text
        assert "counts" not in text
        assert "WN101" in text


def test_a_trace_is_redacted_like_a_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(here / "t")
    main(["report", "t"])
    assert "net.py" in capsys.readouterr().out
    assert main(["report", "t", "--redact"]) == 1
    assert "net.py" not in capsys.readouterr().out


# -- refused ---------------------------------------------------------------------------------------------------------

REFUSED: dict[str, list[str]] = {
    "nothing": ["nothing.json"],
    "a file of a trace": ["t/facts.json"],
    "an empty folder": ["empty"],
    "a broken trace": ["broken"],
    "no JSON": ["text.json"],
    "another schema": ["other.json"],
    "no report of its schema": ["half.json"],
    "an empty file": ["empty.json"],
    "deep nesting": ["deep.json"],
    "no path": [],
    "an unknown option": ["t", "--html", "x"],
    "a folder to write to": ["t", "--json", "empty"],
    "itself to write to": ["text.json", "--json", "./text.json"],
    "its facts to write to": ["t", "--json", "t/facts.json"],
    "nowhere to write to": ["t", "--json", "nowhere/report.json"],
    "control characters": ["\x1b[2J.json"],
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_read_is_refused_with_one_line(
    kind: str, here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    recorded(here / "t")
    recorded(here / "broken")
    change(here / "broken" / "facts.json", "births", 0, "label", to="one")
    (here / "empty").mkdir()
    (here / "text.json").write_text("why is it NaN?")
    (here / "other.json").write_text('{"schema": "whynan.report/9"}')
    (here / "half.json").write_text('{"schema": "whynan.report/1", "verdict": "clean"}')
    (here / "empty.json").write_text("")
    (here / "deep.json").write_text("[" * 100_000)
    assert main(["report", *REFUSED[kind]]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.rstrip("\n").isprintable()
    assert shown.err.replace(str(here), "HERE") == snapshot
    assert not (here / "empty.json").read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(saved: str, here: Path) -> None:
    (here / saved).chmod(0)
    assert main(["report", saved]) == 2


def test_a_full_disk_is_one_line(saved: str, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert main(["report", saved, "--quiet", "--json", "/dev/full"]) == 2
    assert capsys.readouterr().err == snapshot


def test_help_has_examples(snapshot: SnapshotAssertion) -> None:
    result = CliRunner().invoke(whynan, ["report", "--help"], prog_name="whynan", terminal_width=100)
    assert result.exit_code == 0
    assert result.output == snapshot


# -- another machine -------------------------------------------------------------------------------------------------

ELSEWHERE = """
import importlib.abc, json, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "onnx", "onnxruntime", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from whynan.cli.main import main
status = main(sys.argv[1:])
loaded = [name for name in ("torch", "onnx", "onnxruntime") if name in sys.modules]
print(json.dumps({"status": status, "loaded": loaded}))
"""


def elsewhere(*arguments: str) -> tuple[str, dict[str, Any]]:
    """What the command prints where no framework can be imported, its status, and what it loaded."""
    command = [sys.executable, "-c", ELSEWHERE, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}, check=False)
    assert result.returncode == 0, result.stderr
    shown, last = result.stdout.rstrip("\n").rsplit("\n", 1)
    return shown, json.loads(last)


@pytest.mark.process
def test_a_trace_is_told_without_any_framework(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(here / "t")
    main(["report", "t", "--all"])
    shown, ending = elsewhere("report", "t", "--all")
    assert f"{shown}\n" == capsys.readouterr().out
    assert ending == {"status": 1, "loaded": []}


@pytest.mark.process
@pytest.mark.smoke("report")
def test_a_report_is_told_without_any_framework(saved: str) -> None:
    shown, ending = elsewhere("report", saved)
    assert shown == str(REPORTS[FORWARD])
    assert ending == {"status": 1, "loaded": []}


@pytest.mark.process
def test_an_import_of_a_framework_would_be_seen() -> None:
    result = subprocess.run(
        [sys.executable, "-c", ELSEWHERE.replace("status = main", "import torch\nstatus = main"), "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'torch'" in result.stderr


def test_the_source_is_quoted_only_where_it_still_is_that_of_the_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import hashlib

    source = "    torch.f(x)  # as it ran\n"
    (here / "net.py").write_text(source)
    recorded(here / "t", finished=False, facts=trace([birth(1)], [sink(1)]))
    change(here / "t" / "facts.json", "sources", 0, "sha256", to=hashlib.sha256(source.encode()).hexdigest())
    main(["report", "t"])
    assert "# as it ran" in capsys.readouterr().out
    (here / "net.py").write_text(source.replace("as it ran", "as it is now"))
    main(["report", "t"])
    out = capsys.readouterr().out
    assert "as it is now" not in out
    assert "torch.f(x)" in out
