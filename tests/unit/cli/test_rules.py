"""``whynan rules``: the catalogue, a family, a page, and what is called like nothing in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from whynan.cli.main import main
from whynan.rules.catalogue import SECTIONS, parsed_page, rules

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of the same length everywhere."""
    monkeypatch.setenv("COLUMNS", "100")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints."""
    assert main(["rules", *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def test_the_catalogue_names_every_rule_under_its_family(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys).splitlines()
    names = [line.split()[:2] for line in lines if line.startswith("  WN")]
    assert names == [[rule.code, rule.name] for rule in rules()]
    assert lines[0] == "WN0 data and memory"
    assert lines[lines.index("WN3 roots and powers") + 1].startswith("  WN301 sqrt-at-zero ")


def test_a_family_is_listed(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert told(capsys, "WN5") == snapshot
    assert told(capsys, "wn9") == snapshot


def test_a_page_is_found_by_code_and_name(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    page = told(capsys, "WN401")
    assert page == snapshot
    assert told(capsys, "wn401") == told(capsys, "atan2-near-origin") == page


def test_a_hazard_of_exports_is_found_by_code_and_name(capsys: pytest.CaptureFixture[str]) -> None:
    page = told(capsys, "WNX01")
    assert page.startswith("WNX01 atan2-on-negative-axis ")
    assert told(capsys, "wnx01") == told(capsys, "atan2-on-negative-axis") == page
    codes = [line.split()[0] for line in told(capsys, "WNX").splitlines() if line.startswith("WNX")]
    assert codes == [f"WNX{n:02}" for n in range(1, len(codes) + 1)]
    assert main(["rules", "WNX01", "--format", "json"]) == 2


def test_every_page_shows_its_sections_and_both_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for rule in rules():
        text = told(capsys, rule.code)
        lines = text.splitlines()
        assert [line for line in lines if line in SECTIONS] == list(SECTIONS)
        page = parsed_page(rule.code)
        for code in (page.bad, page.good):
            assert all(f"        {line}".rstrip() in text for line in code.splitlines() if len(line) <= 92)


def test_a_narrow_page_loses_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = told(capsys)
    assert max(map(len, table.splitlines())) <= 40
    assert " ".join(table.split()).count("the logarithm of a softmax that is 0") == 1


def test_a_rule_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(told(capsys, "WN404", "--format", "json"))
    assert document["name"] == "singular-matrix"
    assert document["family"] == {"code": "WN4", "name": "angles and inverse functions"}
    assert document["also"] == [{"code": "WN9", "name": "linear algebra"}]
    assert (document["since"], document["torch"]) == ("0.1", None)
    assert tuple(document["sections"]) == SECTIONS


def test_several_rules_as_json_are_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    everything = json.loads(told(capsys, "--format", "json"))
    assert [document["code"] for document in everything] == [rule.code for rule in rules()]
    assert {d["code"]: d["torch"] for d in everything}["WN401"] == next(r.torch for r in rules() if r.code == "WN401")
    assert [d["code"] for d in json.loads(told(capsys, "WN7", "--format", "json"))] == [
        rule.code for rule in rules() if rule.code.startswith("WN7")
    ]


@pytest.mark.parametrize(
    "wanted", ["WN299", "sqrt-at-zer", "WN000", "unexplained", "zzzz", "z" * 3000, "\x1b[2J", "", "W"]
)
def test_what_no_rule_is_called_is_one_line(
    wanted: str, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert main(["rules", wanted]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err == snapshot


@pytest.mark.process
@pytest.mark.smoke("rules")
def test_a_pipe_gets_plain_text_that_its_encoding_can_write() -> None:
    command = [sys.executable, "-m", "whynan", "rules", "WN209"]
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "FORCE_COLOR": ""}
    result = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, env=plain)
    assert b"\x1b" not in result.stdout
    assert b"tanh(x)^2" in result.stdout


@pytest.mark.process
def test_neither_the_list_nor_a_page_needs_a_framework() -> None:
    program = (
        "import sys; from whynan.cli.main import main; "
        "assert main(['rules']) == main(['rules', 'WN201']) == 0; "
        "print(sorted({'torch', 'onnx', 'onnxruntime'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.splitlines()[-1] == "[]"
