"""The terminal report, word for word, at several widths; and what holds of every report at every width."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

import whynan
from tests.selection import examples
from tests.unit.report.programs import (
    ABSORBED,
    FORWARD,
    REPORTS,
    cause,
    finding,
    line_of,
    reach,
    report,
    site,
    value,
)
from tests.unit.report.strategies import reports
from whynan.records import Data, Fix, FixVerdict, Replay, Report, Site
from whynan.report.terminal import Shown, render

COLOR_CODE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", REPORTS)
def test_each_report_reads_well(name: str, snapshot: SnapshotAssertion) -> None:
    assert render(REPORTS[name], width=80, source=line_of) == snapshot


@pytest.mark.parametrize("width", [40, 120])
@pytest.mark.parametrize("name", ["backward", "masked", "entered"])
def test_narrow_and_wide_terminals(name: str, width: int, snapshot: SnapshotAssertion) -> None:
    assert render(REPORTS[name], width=width, source=line_of) == snapshot


@pytest.mark.parametrize("code", ["np.log2(f0 / 440)", None], ids=["told", "redacted"])
def test_the_rest_of_a_report_names_what_a_proved_fix_shows_to_have_made_the_data(
    code: str | None, snapshot: SnapshotAssertion
) -> None:
    data = Data(kind="numpy", name="notes")
    before = REPORTS["entered"].findings[0].model_copy(update={"data": data})
    maker = Site(file="features.py", line=5, column=22, end_line=5, end_column=39, code=code)
    after = before.model_copy(update={"data": data.model_copy(update={"computed": maker})})
    known, made = (REPORTS["entered"].model_copy(update={"findings": (one,)}) for one in (before, after))
    assert render(made, width=80, source=line_of, already=Shown(before)) == snapshot
    assert "features.py" not in render(known, width=80, source=line_of, already=Shown(before))
    assert "features.py" not in render(made, width=80, source=line_of, already=Shown(after))


def test_show_all_tells_of_what_did_no_harm(snapshot: SnapshotAssertion) -> None:
    assert render(REPORTS["several"], width=80, source=line_of, show_all=True) == snapshot


@pytest.mark.parametrize("width", [32, 33, 47, 64, 100, 200])
@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_longer_than_the_terminal_and_nothing_is_lost(name: str, width: int) -> None:
    text = render(REPORTS[name], width=width, source=line_of)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    # folding may break anything but a character, and the carets move with the source
    assert _told(text) == _told(render(REPORTS[name], width=4000, source=line_of))


@pytest.mark.breadth
@given(reports(), st.integers(32, 200), st.sampled_from(["utf-8", "ascii", "latin-1", "shift_jis", "no-such-encoding"]))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
    lengths = {name: len(render(made, width=100, source=line_of).splitlines()) for name, made in REPORTS.items()}
    # two hold several findings or fixes, one an expression over seven lines
    assert {name for name, length in lengths.items() if length > 20} == {"several", "backward", "masked"}
    assert lengths["masked"] <= 24


@pytest.mark.parametrize(
    ("phase", "kinds", "place"),
    [
        ("forward", ("loss", "gradient", "parameter"), "the loss"),
        ("forward", ("gradient", "parameter", "loss"), "the gradients"),
        ("forward", ("observed", "output"), "the output"),
        ("backward", ("gradient", "parameter", "loss"), "the gradients"),
        ("optimizer", ("parameter", "loss", "gradient"), "the parameters"),
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
    assert "5 places made bad numbers that did no harm; --all or show(show_all=True)" in render(made)
    assert "did no harm;" not in render(made, show_all=True)


def _told(text: str) -> str:
    """What is said, without the spaces, carets, dots and line breaks of its layout."""
    return "".join(text.translate({ord("^"): None, ord("·"): None}).split())


HOSTILE = "[bold red]x[/] :smile: \x1b[31m\x07\r\n\t\u202e\u2066\u2028\udc80\x9b2J \u200d\ufe0f 入力 e\u0301"


def test_text_from_strangers_is_shown_as_text(snapshot: SnapshotAssertion) -> None:
    assert render(hostile(), width=100, source=lambda file, line: HOSTILE) == snapshot


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [32, 57, 100])
def test_nothing_from_a_stranger_commands_the_terminal(width: int, color: bool) -> None:
    text = COLOR_CODE.sub("", render(hostile(), width=width, source=lambda file, line: HOSTILE, color=color))
    assert text.replace("\n", "").isprintable()
    assert all(cell_len(line) <= width for line in text.split("\n"))
    assert "[bold red]x[/]" in render(hostile(), width=1000, color=color)


def hostile() -> Report:
    """A report whose every text comes from a stranger."""
    there = Site(file=HOSTILE, line=1, column=3, end_line=1, end_column=9, code=HOSTILE, function=HOSTILE)
    element = FORWARD.element.model_copy(
        update={"tensor": HOSTILE, "dtype": HOSTILE, "operands": (value(HOSTILE, HOSTILE, expression=HOSTILE),)}
    )
    found = finding(
        rule=HOSTILE, name=HOSTILE, op=HOSTILE, message=HOSTILE, explanation=HOSTILE, element=element, phase="backward",
        grad_fn=HOSTILE, site=there.model_copy(update={"module": HOSTILE}), library_site=there,
        chain=(cause(HOSTILE + "!", 1, HOSTILE),), reaches=(reach("gradient", HOSTILE),), occurrences=2,
        modules=(HOSTILE, HOSTILE),
        fixes=(Fix(title=HOSTILE, kind="source", patch="+" + HOSTILE, verdict=FixVerdict(status="verified")),),
    )  # fmt: skip
    run = {"versions": {"whynan": HOSTILE, "torch": HOSTILE}, "device": HOSTILE, "exception": HOSTILE}
    replay = Replay(kind="rerun", faithful=True, why=HOSTILE)
    return report(found, run=run | {"replay": replay}, coverage={"notes": (HOSTILE,)}, unused_allows=(HOSTILE,))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "koi8-r", "shift_jis", "utf-16"])
def test_signs_that_an_encoding_lacks_give_way_to_plain_ones(encoding: str, snapshot: SnapshotAssertion) -> None:
    text = render(REPORTS["backward"], width=100, source=line_of, encoding=encoding)
    assert text.encode(encoding).decode(encoding) == text
    assert text.splitlines()[:12] == snapshot


def test_carets_stay_under_the_expression_in_every_encoding() -> None:
    found = report(finding(site=site(21, "損失(probability, 0)"), op=None))
    for encoding, width in (("utf-8", 20), ("ascii", 28)):
        _, marks = _source_and_carets(render(found, width=100, source=line_of, encoding=encoding))
        assert marks.split()[0] == "^" * width


def _source_and_carets(text: str) -> tuple[str, str]:
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.lstrip().startswith("^"))
    return lines[at - 1], lines[at]


def test_a_report_of_a_real_run(tmp_path: Path) -> None:
    script = tmp_path / "entropy.py"
    script.write_text("import torch\n\ndef entropy(p):\n\treturn -(p * torch.log(p)).sum(dim=-1)\n", "utf-8")
    namespace: dict[str, Any] = {}
    exec(compile(script.read_text("utf-8"), str(script), "exec"), namespace)
    made = whynan.explain(namespace["entropy"], torch.tensor([[0.5, 0.5, 0.0]]))
    text = render(made, width=100)
    source, marks = _source_and_carets(text)
    assert text.startswith("Inf or NaN in the output ")
    assert source[marks.index("^") :].startswith("torch.log(p)")
    assert marks.split() == ["^" * len("torch.log(p)"), "aten.log.default"]
    assert "  element  [0, 2] of f32[1, 3] is -Inf, 1 of 3\n           p = 0\n" in text
    assert text.index("\n  born ") < text.index("\n  element ") < text.index("\n  why ") < text.index("\n  reaches ")
    # the file changes after the run: only what the report itself holds is shown
    script.write_text("import torch\n\n\n\treturn -(q * torch.log(p)).sum(dim=-1)\n", "utf-8")
    changed = render(made, width=100)
    assert "return -(q" not in changed
    assert "               torch.log(p)\n" in changed


def test_of_very_many_things_the_first_are_told_and_the_rest_counted() -> None:
    many = tuple(value(f"x{n}", float(n)) for n in range(500))
    lost = tuple(value(f"y{n}", None, origin="gone") for n in range(500))
    fix = Fix(title="a fix", kind="setting", patch=None, verdict=FixVerdict(status="unverified"))
    found = finding(element=FORWARD.element.model_copy(update={"operands": many + lost}), fixes=(fix,) * 50)
    text = render(report(found, coverage={"notes": tuple(f"about {n}" for n in range(500))}), width=100)
    assert len(text.splitlines()) < 90
    assert "and 984 more operands" in text
    assert "and 49 more fixes; the JSON report has them all" in text
    assert "and 460 more notes; the JSON report has them all" in text


@pytest.mark.parametrize(
    ("statuses", "shown", "last"),
    [
        (("verified", "verified"), 1, "and 1 more fix, verified too; --all shows it"),
        (("verified", "verified", "unverified"), 1, "and 2 more fixes, 1 of them verified; --all shows them"),
        (("verified", "rejected"), 1, "1 fix tried and rejected; --all shows it"),
        (("distorting", "distorting"), 2, "- 2 * s"),
        (("unverified", "unverified"), 1, "and 1 more fix; --all shows it"),
    ],
)
def test_beside_a_verified_fix_no_other_takes_room(statuses: tuple[Any, ...], shown: int, last: str) -> None:
    patch = "--- a\n+++ a\n@@ -1 +1 @@\n-2 * s\n"
    fixes = tuple(Fix(title=s, kind="source", patch=patch, verdict=FixVerdict(status=s)) for s in statuses)
    text = render(report(finding(fixes=fixes)), width=100)
    assert text.count("\n  fix  ") == shown
    assert last in text
    whole = render(report(finding(fixes=fixes)), width=100, show_all=True)
    assert whole.count("\n  fix  ") == len(fixes)
    assert "--all" not in whole


def test_a_rewrite_of_another_expression_is_not_listed() -> None:
    unfit = FixVerdict(status="unverified", why="x is not written as y", reason="unfit")
    rewrites = tuple(Fix(title=f"way {n}", kind="source", patch=None, verdict=unfit) for n in range(3))
    setting = Fix(title="another dtype", kind="setting", patch=None, verdict=FixVerdict(status="unverified", why="no"))
    first = render(report(finding(fixes=(*rewrites, setting))), width=100)
    assert "  fix      unverified: another dtype\n           no\n\n" in first
    assert "not written as" not in first
    assert "\n  fix  " not in render(report(finding(fixes=rewrites)), width=100)
    assert render(report(finding(fixes=rewrites)), width=100, show_all=True).count("\n  fix  ") == 3


def test_rewrites_none_of_which_holds_are_one_line() -> None:
    wrong = tuple(
        Fix(title=f"way {n}", kind="source", patch="@@ -1 +1 @@\n-a\n+b\n", verdict=FixVerdict(status="rejected"))
        for n in range(3)
    )
    setting = Fix(title="another dtype", kind="setting", patch=None, verdict=FixVerdict(status="unverified", why="no"))
    told = render(report(finding(fixes=wrong)), width=100)
    assert "\n  fix      3 rewrites tried, none holds; --all shows why\n" in told
    told = render(report(finding(fixes=(setting, wrong[0]))), width=100)
    assert "\n           1 rewrite tried, which does not hold; --all shows why\n" in told


def test_the_fix_of_another_finding_is_not_taken_for_the_same_for_want_of_a_change() -> None:
    first, second = (
        Fix(title=title, kind="setting", patch=None, verdict=FixVerdict(status="unverified")) for title in "ab"
    )
    told = render(report(finding(fixes=(first,)), finding(fixes=(second,)), finding(fixes=(first,))), width=100)
    assert told.count("unverified: a\n") == 1
    assert told.count("unverified: b\n") == 1
    assert told.count("unverified: the first of finding 1") == 1


def test_two_edits_whose_change_is_not_there_are_not_taken_for_the_same() -> None:
    verified = Fix(
        title="a change of the source, left out", kind="source", patch=None, verdict=FixVerdict(status="verified")
    )
    told = render(report(finding(fixes=(verified,)), finding(fixes=(verified,))), width=100)
    assert "the first of finding" not in told


def test_what_is_wrong_with_the_source_is_told_beside_a_setting() -> None:
    setting = Fix(title="another dtype", kind="setting", patch=None, verdict=FixVerdict(status="unverified"))
    lost = FixVerdict(status="unverified", why="train.py does not parse")
    told = render(report(finding(fixes=(Fix(title="a", kind="source", patch=None, verdict=lost), setting))), width=100)
    assert "train.py does not parse" in told
    assert "how it is written" not in told


UNPROVED = Fix(
    title="an eps",
    kind="source",
    patch="@@ -1 +1 @@\n-a / b\n+a / c\n",
    verdict=FixVerdict(status="unverified", why="no"),
)


def test_of_a_change_that_nothing_proves_only_its_title_is_told() -> None:
    proved = UNPROVED.model_copy(update={"title": "a guard", "verdict": FixVerdict(status="distorting", why="so much")})
    told = report(finding(fixes=(UNPROVED,)))
    assert "fix      unverified: an eps\n           no\n" in render(told, width=100)
    assert "a / c" not in render(told, width=100)
    assert "the JSON report has the change that nothing proves" in render(told, width=100)
    assert "whynan fix made.json shows the change that nothing proves" in render(told, width=100, written="made.json")
    both = render(report(finding(fixes=(proved, UNPROVED))), width=100)
    assert both.count("a / c") == 1
    assert "nothing proves" not in both
    assert "nothing proves" in render(report(finding(fixes=(proved, UNPROVED))), width=100, show_all=True)


def test_a_fix_that_is_not_the_first_is_made_by_its_number() -> None:
    verified = [
        Fix(
            title="t",
            kind="source",
            patch=f"@@ -1 +1 @@\n-a\n+{name}\n",
            verdict=FixVerdict(status="verified", why="y"),
        )
        for name in "bc"
    ]
    first, second = finding(fixes=(verified[0],)), finding(site=site(21, "損失(probability, 0)"), fixes=(verified[1],))
    told = render(report(first, second), width=100, written="r.json")
    assert [line.strip() for line in told.splitlines() if "--apply" in line] == [
        "whynan fix r.json --apply",
        "whynan fix r.json --choose 2 --apply",
    ]
