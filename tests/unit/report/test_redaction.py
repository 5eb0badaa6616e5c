"""A redacted report: nothing private in any rendering, and still of use to whoever gets it."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

from tests.selection import examples
from tests.unit.report.programs import ABSORBED, FORWARD, REPORTS, finding, line_of, reach, report
from tests.unit.report.strategies import reports
from tests.unit.traces.filled import SECRET, Fill
from whynan.records import Report, Site
from whynan.report.json import parse_report, schema, to_json
from whynan.report.redaction import redacted
from whynan.report.terminal import render
from whynan.traces.redaction import FACTS, LEFT_OUT, Pseudonyms, Redaction

VALIDATOR = Draft202012Validator(schema())


@pytest.mark.parametrize("redact", [True, False])
def test_no_text_of_a_report_is_let_through(redact: bool) -> None:
    fill = Fill()
    made: Report = fill.record(Report)
    assert len(fill.told) > 150
    shown = redacted(made) if redact else made
    for text in (to_json(shown), render(shown, show_all=True, width=200), repr(shown)):
        assert (SECRET in text) is not redact
    assert ("0.4142" in to_json(shown).replace('"max_ulp": 0.4142', "").replace('"max_rel": 0.4142', "")) is not redact


@pytest.mark.parametrize(
    "name",
    [
        "backward",
        "entered",
        "optimizer",
        "masked",
        "library",
        "raised",
        "allowed",
        "inconclusive",
        "unfaithful",
        "silent damage",
    ],
)
def test_a_redacted_report_reads_well(name: str, snapshot: SnapshotAssertion) -> None:
    assert render(redacted(REPORTS[name]), width=100, source=line_of) == snapshot


@pytest.mark.breadth
@given(reports())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_redacted_report_is_a_report_of_the_schema(made: Report) -> None:
    left = redacted(made)
    VALIDATOR.validate(json.loads(to_json(left)))
    assert repr(parse_report(to_json(left))) == repr(left)
    assert repr(redacted(left)) == repr(left)
    render(left, show_all=True)


@pytest.mark.parametrize("name", REPORTS)
def test_what_decides_stays(name: str) -> None:
    made, left = REPORTS[name], redacted(REPORTS[name])
    assert left.verdict == made.verdict
    assert left.run.exit_status == made.run.exit_status
    assert left.absorbed_count == made.absorbed_count
    assert left.coverage.events == made.coverage.events
    assert left.coverage.typed_notes[0] == LEFT_OUT
    for before, after in zip(made.findings, left.findings, strict=True):
        same = ("rule", "name", "severity", "fate", "birth", "phase", "op", "grad_fn", "step", "micro", "occurrences")
        assert [getattr(after, field) for field in same] == [getattr(before, field) for field in same]
        assert after.element.index == before.element.index
        assert after.element.shape == before.element.shape
        assert repr(after.element.value) == repr(before.element.value)
        assert [(r.kind, r.bad, r.total) for r in after.reaches] == [(r.kind, r.bad, r.total) for r in before.reaches]
        assert [(link.role, link.op) for link in after.chain] == [(link.role, link.op) for link in before.chain]
        if before.site is not None and after.site is not None:
            assert (after.site.line, after.site.column) == (before.site.line, before.site.column)


def test_no_file_that_happens_to_have_such_a_name_is_read(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    with open("file 1", "w", encoding="utf-8") as file:
        file.write("confidential\n" * 80)
    text = render(redacted(REPORTS["forward"]))
    assert "file 1:20:16" in text
    assert "confidential" not in text


def test_one_name_has_one_number_in_the_whole_report() -> None:
    elsewhere = Site(file="loss.py", line=9, function="entropy")
    made = report(
        FORWARD,
        finding(site=elsewhere, reaches=(reach("parameter", "w"), reach("gradient", "w"), reach("gradient", "b"))),
        absorbed=(ABSORBED,),
    )
    left = redacted(made)
    first, second = left.findings
    assert first.site is not None
    assert second.site == Site(file="file 2", line=9, function=first.site.function)
    assert left.absorbed[0].site == first.site
    assert [r.name for r in second.reaches] == ["tensor 1", "tensor 1", "tensor 2"]


def test_a_report_can_keep_the_numbers_of_its_trace() -> None:
    names = Pseudonyms()
    Redaction(FACTS, names).redact(Site(file="other.py", line=1, function="main"))
    site = redacted(report(FORWARD), names).findings[0].site
    assert site is not None
    assert (site.file, site.function) == ("file 2", "function 2")


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"versions": {"torch": "2.13.0+cpu", "python": "3.11.7", "adalib": "1.0"}},
         {"versions": {"torch": "2.13.0+cpu", "python": "3.11.7"}}),
        ({"versions": {"torch": "2.13.0a0+gitada", "numpy": "ada"}}, {"versions": {"torch": "2.13.0a0"}}),
        ({"device": "cuda:3"}, {"device": "cuda:3"}),
        ({"device": "adas-machine"}, {"device": "a device"}),
        ({"flags": {"threads": 2, "default_dtype": "bfloat16", "float32_matmul_precision": "high", "ada": True}},
         {"flags": {"threads": 2, "default_dtype": "bfloat16", "float32_matmul_precision": "high"}}),
        ({"flags": {"default_dtype": "ada"}}, {"flags": {}}),
        ({"command": "ada.py"}, {"command": "left out"}),
        ({"data": "/home/ada"}, {"data": None}),
        ({"exception": "ValueError: ada"}, {"exception": "ValueError"}),
        ({"exception": "AdaError: ada"}, {"exception": "an exception"}),
    ],
)  # fmt: skip
def test_of_the_run_only_what_many_runs_share_stays(given: dict[str, object], left: dict[str, object]) -> None:
    run = redacted(report(FORWARD, run=given)).run
    assert {name: getattr(run, name) for name in left} == left
    assert run.sources == ()


def test_what_is_allowed_is_told_by_code_only() -> None:
    made = report(unused_allows=("WN5", "adas-rule", "# whynan: allow WN213 at ada.py:3"))
    assert redacted(made).unused_allows == ("WN5", "a rule's name")
