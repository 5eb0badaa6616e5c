"""The JSON report: strict, as its schema says, read back as it was, and refused with the reason where it is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator, ValidationError
from syrupy.assertion import SnapshotAssertion

from tests.selection import examples
from tests.unit.report.programs import FORWARD, REPORTS, finding, reach, report, value
from tests.unit.report.strategies import reports
from whynan.errors import UsageError
from whynan.records import Report
from whynan.report.json import SCHEMA_FILE, make_schema, parse_report, schema, to_json

ROOT = Path(__file__).parents[3]
VALIDATOR = Draft202012Validator(schema())


def strictly(text: str) -> Any:
    """A document as a parser reads it that knows no more than JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.breadth
@given(reports())
@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_report_is_strict_json_of_its_schema_and_is_read_back(made: Report) -> None:
    text = to_json(made)
    VALIDATOR.validate(strictly(text))
    again = parse_report(text)
    assert to_json(again) == text
    assert repr(again) == repr(made)


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("indent", [None, 2])
def test_reports_of_programs_survive_the_file(name: str, indent: int | None) -> None:
    text = to_json(REPORTS[name], indent=indent)
    VALIDATOR.validate(strictly(text))
    assert repr(parse_report(text.encode())) == repr(REPORTS[name])
    assert ("\n" in text) is (indent is not None)


def test_nan_and_the_infinities_are_words_and_come_back_as_numbers() -> None:
    operands = tuple(value(n, float(n), min=float(n)) for n in ("nan", "inf", "-inf"))
    element = FORWARD.element.model_copy(update={"value": float("-inf"), "operands": operands})
    made = report(finding(element=element), run={"flags": {"clip": float("inf"), "mode": "max"}})
    held = strictly(to_json(made))["findings"][0]["element"]
    assert held["value"] == "-Infinity"
    assert [o["value"] for o in held["operands"]] == ["NaN", "Infinity", "-Infinity"]
    assert [o["min"] for o in held["operands"]] == ["NaN", "Infinity", "-Infinity"]
    again = parse_report(to_json(made))
    assert repr(again) == repr(made)
    assert all(isinstance(o.value, float) for o in again.findings[0].element.operands)


def test_a_name_that_is_no_unicode_is_written_as_its_escape() -> None:
    lost = "w\udc80"
    flags = {lost: lost, "x": 1.5}
    made = report(finding(reaches=(reach("parameter", lost),)), run={"flags": flags}, unused_allows=(lost,))
    text = to_json(made)
    VALIDATOR.validate(strictly(text))
    text.encode("utf-8")
    again = parse_report(text)
    assert again.findings[0].reaches[0].name == "w\\udc80"
    assert again.unused_allows == ("w\\udc80",)
    assert again.run.flags == {"w\\udc80": "w\\udc80", "x": 1.5}


GOOD: dict[str, Any] = json.loads(to_json(REPORTS["forward"]))


def changed(*path: str | int, to: Any) -> str:
    """The document of a good report with one thing changed."""
    document = json.loads(json.dumps(GOOD))
    held = document
    for part in path[:-1]:
        held = held[part]
    held[path[-1]] = to
    return json.dumps(document)


REFUSED: dict[str, str | bytes] = {
    "nothing": "",
    "no JSON": "why is it NaN?",
    "cut off": to_json(REPORTS["forward"])[:200],
    "two documents": "{} {}",
    "a list": "[]",
    "a number": "3",
    "null": "null",
    "an empty object": "{}",
    "another schema": changed("schema", to="whynan.report/9"),
    "a schema of another kind": changed("schema", to={"a": [1]}),
    "a bare NaN": changed("absorbed_count", to=float("nan")),
    "a bare Infinity": '{"schema": "whynan.report/2", "verdict": -Infinity}',
    "a name twice": '{"schema": "whynan.report/2", "verdict": "clean", "verdict": "nonfinite"}',
    "deep nesting": "[" * 100_000,
    "bytes of another encoding": '{"größe": 1}'.encode("latin-1"),
    "UTF-16": to_json(REPORTS["clean"]).encode("utf-16"),
    "a mark at the start": "\ufeff{}",
    "a number too long": '{"schema": "whynan.report/2", "absorbed_count": ' + "9" * 5000 + "}",
    "a lone surrogate": changed("run", "command", to="\ud800"),
    "an unknown verdict": changed("verdict", to="fine"),
    "an unknown field": changed("colour", to="red"),
    "a hostile field": changed("\x1b[2J\n" + "x" * 500, to=1),
    "a field that is missing": json.dumps({k: v for k, v in GOOD.items() if k != "run"}),
    "a line that is no number": changed("findings", 0, "site", "line", to="twelve"),
    "findings that are no list": changed("findings", to={"0": GOOD["findings"][0]}),
    "a value that is a list": changed("findings", 0, "element", "operands", 0, "value", to=[1.0]),
    "a shape of text": changed("findings", 0, "element", "shape", to="8x4"),
    "a role that is none": changed("findings", 0, "chain", 0, "role", to="culprit"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_report_is_refused_with_the_first_thing_that_is_wrong(
    name: str, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UsageError) as refused:
        parse_report(REFUSED[name])
    assert str(refused.value) == snapshot
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1200


def test_a_document_of_version_1_is_still_read() -> None:
    text = (Path(__file__).parent / "report-1.json").read_text("utf-8")
    assert json.loads(text)["schema"] == "whynan.report/1"
    made = parse_report(text)
    assert repr(Report.from_json(text)) == repr(made)
    assert [f.also for f in made.findings] == [()] * len(made.findings)
    assert made.findings
    assert json.loads(to_json(made))["schema"] == "whynan.report/2"


def test_a_schema_of_another_record_is_no_report_of_version_1() -> None:
    with pytest.raises(UsageError, match=r"whynan\.checkpoint/1"):
        parse_report(changed("schema", to="whynan.checkpoint/1"))


@pytest.mark.breadth
@given(reports())
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_document_that_is_cut_off_is_never_read(made: Report) -> None:
    text = to_json(made, indent=None)
    with pytest.raises(UsageError):
        parse_report(text[: len(text) // 2])


def test_the_published_schema_is_that_of_the_record_types() -> None:
    assert schema() == make_schema()
    Draft202012Validator.check_schema(schema())
    assert schema()["$id"] == "whynan.report/2"


@pytest.mark.process
def test_the_script_writes_the_published_schema_byte_for_byte(tmp_path: Path) -> None:
    published = ROOT / "src" / "whynan" / "report" / "schema" / SCHEMA_FILE
    before = published.read_bytes()
    script = ROOT / "scripts" / "make_schema.py"
    copied = tmp_path / "scripts" / "make_schema.py"
    target = tmp_path / "src" / "whynan" / "report" / "schema"
    copied.parent.mkdir()
    target.mkdir(parents=True)
    copied.write_bytes(script.read_bytes())
    subprocess.run([sys.executable, str(copied)], check=True, timeout=60)
    assert (target / SCHEMA_FILE).read_bytes() == before


@pytest.mark.parametrize(
    "path",
    [("schema",), ("verdict",), ("findings", 0, "element", "value"), ("findings", 0, "site", "line"), ("surplus",)],
)
def test_the_schema_refuses_what_no_report_says(path: tuple[str | int, ...]) -> None:
    with pytest.raises(ValidationError):
        VALIDATOR.validate(json.loads(changed(*path, to="nonsense")))
