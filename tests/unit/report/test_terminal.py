"""The terminal report, word for word, at several widths; and what holds of every report at every width."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from tests.unit.report.programs import ABSORBED, FORWARD, REPORTS, finding, line_of, reach, report
from tests.unit.report.strategies import reports
from whynan.records import Report
from whynan.report.terminal import render

COLOR_CODE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", REPORTS)
def test_each_report_reads_well(name: str, snapshot: SnapshotAssertion) -> None:
    assert render(REPORTS[name], width=80, source=line_of) == snapshot


@pytest.mark.parametrize("width", [40, 120])
@pytest.mark.parametrize("name", ["backward", "masked", "entered"])
def test_narrow_and_wide_terminals(name: str, width: int, snapshot: SnapshotAssertion) -> None:
    assert render(REPORTS[name], width=width, source=line_of) == snapshot


def test_show_all_tells_of_what_did_no_harm(snapshot: SnapshotAssertion) -> None:
    assert render(REPORTS["several"], width=80, source=line_of, show_all=True) == snapshot


@pytest.mark.parametrize("width", [32, 33, 47, 64, 100, 200])
@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_longer_than_the_terminal_and_nothing_is_lost(name: str, width: int) -> None:
    text = render(REPORTS[name], width=width, source=line_of)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    # folding may break anything but a character, and the carets move with the source
    assert _told(text) == _told(render(REPORTS[name], width=4000, source=line_of))


@given(reports(), st.integers(32, 200), st.sampled_from(["utf-8", "ascii", "latin-1", "shift_jis", "no-such-encoding"]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_report_can_be_shown(made: Report, width: int, encoding: str) -> None:
    text = render(made, width=width, encoding=encoding, show_all=True, source=lambda _file, _line: None)
    assert all(cell_len(line) <= width for line in text.split("\n"))
    assert text.replace("\n", "").isprintable()
    text.encode("ascii" if encoding == "no-such-encoding" else encoding)


@pytest.mark.parametrize("name", REPORTS)
def test_colours_change_no_word(name: str) -> None:
    coloured = render(REPORTS[name], width=80, source=line_of, color=True)
    assert "\x1b[" in coloured
    assert COLOR_CODE.sub("", coloured) == render(REPORTS[name], width=80, source=line_of)


def test_narrower_than_the_narrowest_is_the_narrowest() -> None:
    assert render(REPORTS["forward"], width=5, source=line_of) == render(REPORTS["forward"], width=32, source=line_of)


def test_the_width_is_the_terminals_and_never_more_than_a_sentence_can_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert render(REPORTS["forward"], source=line_of) == render(REPORTS["forward"], width=70, source=line_of)
    monkeypatch.setenv("COLUMNS", "300")
    assert render(REPORTS["forward"], source=line_of) == render(REPORTS["forward"], width=120, source=line_of)


def test_a_finding_is_about_twenty_lines() -> None:
    assert all(len(render(r, width=100, source=line_of).splitlines()) <= 22 for n, r in REPORTS.items() if _single(n))


@pytest.mark.parametrize(
    ("phase", "kinds", "place"),
    [
        ("forward", ("gradient", "parameter", "loss"), "the loss"),
        ("forward", ("observed", "output"), "the output"),
        ("backward", ("loss", "parameter", "gradient"), "the gradients"),
        ("optimizer", ("loss", "gradient", "parameter"), "the parameters"),
        ("buffer", ("loss", "buffer"), "a buffer"),
    ],
)
def test_the_headline_names_what_was_spoiled_first(phase: str, kinds: tuple[str, ...], place: str) -> None:
    found = finding(phase=phase, reaches=tuple(reach(kind) for kind in kinds))
    assert render(report(found), source=line_of).startswith(f"NaN in {place} at step 3")


@pytest.mark.parametrize(("carried", "word"), [(True, "Inf or NaN"), (False, "-Inf")])
def test_an_infinity_that_went_through_operations_may_have_become_nan(carried: bool, word: str) -> None:
    element = FORWARD.element.model_copy(update={"value": float("-inf")})
    chain = FORWARD.chain if carried else ()
    text = render(report(finding(element=element, chain=chain)), source=line_of)
    assert text.startswith(f"{word} in the loss")
    assert "] of f32[8, 4] is -Inf, and 3 more of 32" in text


def test_a_finding_without_sinks_claims_none() -> None:
    text = render(report(finding(reaches=())), source=line_of)
    assert text.startswith("NaN in the run")
    assert "reaches" not in text


def test_what_did_no_harm_is_counted_where_it_is_not_told() -> None:
    made = report(absorbed=(ABSORBED,), absorbed_count=5)
    assert "5 places made bad numbers that did no harm; show(show_all=True)" in render(made)
    assert "did no harm;" not in render(made, show_all=True)


def _single(name: str) -> bool:
    return name not in ("several", "backward")


def _told(text: str) -> str:
    """What is said, without the spaces, carets, dots and line breaks of its layout."""
    return "".join(text.translate({ord("^"): None, ord("·"): None}).split())
