"""The list of fixes and the verdict of one's own: text is data in them, and lines end where the page does."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from tests.quality.hostile import TEXTS
from tests.unit.report.programs import finding, report, site
from whynan.records import Fix, FixVerdict, Report
from whynan.records.trial import Trial
from whynan.report import page as layout
from whynan.report.fixes import listing as fixes
from whynan.report.fixes import proposals, trial
from whynan.report.json import parse_report, to_json
from whynan.report.redaction import redacted

SGR = re.compile(r"\x1b\[[0-9;]*m")
KINDS: tuple[Any, ...] = ("source", "graph", "setting")
STATUSES: tuple[Any, ...] = ("verified", "distorting", "rejected", "unverified")


def hostile(text: str) -> Report:
    """A report in which a stranger wrote everything about its fixes."""
    told = [
        Fix(title=text, kind=kind, patch=f"@@ -1 +1 @@\n-{text}\n+{text}", verdict=FixVerdict(status=status, why=text))
        for kind in KINDS
        for status in STATUSES
    ]
    place = site(12, "torch.atan2(imag, real)").model_copy(update={"file": text, "code": text})
    found = finding(rule=text, name=text, site=place, node=text, fixes=tuple(told))
    return parse_report(to_json(report(found, run={"command": text})))


def check(text: str, width: int) -> None:
    """Raise where a terminal would obey, hide or run over."""
    assert text.replace("\n", "").isprintable()
    assert all(cell_len(line) <= width for line in text.split("\n"))
    assert len(text) < 200_000


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("name", TEXTS)
def test_the_list_obeys_no_stranger(name: str, width: int) -> None:
    made = hostile(TEXTS[name])
    plain = fixes.render(made, TEXTS[name], "", width=width)
    check(plain, width)
    assert SGR.sub("", fixes.render(made, TEXTS[name], "", width=width, color=True)) == plain


def test_the_check_sees_what_is_not_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "plain", lambda held: held)
    with pytest.raises(AssertionError):
        check(fixes.render(hostile(TEXTS["colours"]), "report.json", "", width=100), 100)


@pytest.mark.parametrize("name", TEXTS)
def test_the_verdict_of_a_fix_of_ones_own_obeys_no_stranger(name: str) -> None:
    text = TEXTS[name]
    verdict = FixVerdict(status="rejected", forward_finite=True, why=text)
    made = Trial(change=text, rule=text, name=text, site=None, node=text, verdict=verdict)
    check(trial.render(made, width=40), 40)
    document = trial.to_json(made)
    assert document.replace("\n", "").isprintable()
    Draft202012Validator(trial.schema()).validate(json.loads(document))


def test_a_change_is_shown_as_a_whole_before_it_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1 +1,2000 @@\n-x\n" + "".join(f"+line {number}\n" for number in range(2000))
    fixes.show_change("fix 1 in x: title", "verified", patch)
    assert capsys.readouterr().out.count("+line") == 2000


def test_absorbed_findings_have_no_offers() -> None:
    fix = Fix(title="", kind="source", patch="", verdict=FixVerdict(status="verified"))
    made = report(verdict="clean", absorbed=(finding(fate="absorbed", fixes=(fix,)),), absorbed_count=1)
    assert fixes.offers(made) == ()


def test_the_numbers_run_over_all_findings() -> None:
    told = [Fix(title=name, kind="source", patch=name, verdict=FixVerdict(status="rejected")) for name in "abc"]
    made = report(finding(fixes=told[:2]), damaging=(finding(fate="damaging", fixes=told[2:]),))
    assert [(offer.number, offer.fix.title) for offer in fixes.offers(made)] == [(1, "a"), (2, "b"), (3, "c")]


def test_a_change_that_mends_several_findings_is_offered_once() -> None:
    told = [Fix(title=name, kind="source", patch=name, verdict=FixVerdict(status="verified")) for name in "abc"]
    made = report(finding(fixes=told[:2]), finding(op="aten.log.default", fixes=told[1:]))
    assert [offer.fix.title for offer in fixes.offers(made)] == ["a", "b", "c"]
    assert [offer.finding.op for offer in fixes.offers(made)] == ["aten.div.Tensor"] * 2 + ["aten.log.default"]


def unwritten(*whys: str, kind: Any = "source") -> list[Fix]:
    """Fixes that could not be written, each with its reason."""
    return [Fix(title=why[:3], kind=kind, patch=None, verdict=FixVerdict(status="unverified", why=why)) for why in whys]


NO_WAYS = [
    "x.pow(2).sum(-1).sqrt() is not written as sqrt(a**2 + b**2)",
    "x.pow(2).sum(-1).sqrt() is not written as sqrt(sum(x**2, d, k))",
    "x.pow(2).sum(-1).sqrt() is not written as x ** p",
    "it is written so already",
    "it is written so already",
]


@pytest.mark.parametrize("width", [40, 80])
def test_what_could_not_be_written_is_told_in_few_lines(width: int, snapshot: SnapshotAssertion) -> None:
    made = Fix(title="a", kind="source", patch="@@ -1 +1 @@\n-a\n+b\n", verdict=FixVerdict(status="verified"))
    setting = Fix(title="eps=1e-8", kind="setting", patch=None, verdict=FixVerdict(status="unverified", why="by hand"))
    told = report(finding(fixes=tuple(unwritten(*NO_WAYS))), finding(fixes=(made, *unwritten(*NO_WAYS[:2]), setting)))
    text = fixes.render(told, "report.json", "", width=width)
    check(text, width)
    assert text == snapshot


def test_reasons_that_only_begin_alike_stay_apart() -> None:
    told = report(finding(fixes=tuple(unwritten("b is a number there", "b is assigned before it would be read"))))
    text = fixes.render(told, "report.json", "", width=100)
    assert "b is a number there\n" in text
    assert "b is assigned before it would be read\n" in text


def test_numbers_count_what_is_told_together() -> None:
    last = Fix(title="last", kind="source", patch="+c", verdict=FixVerdict(status="verified"))
    text = fixes.render(report(finding(fixes=(*unwritten(*NO_WAYS), last))), "report.json", "", width=100)
    assert "  1-5  unverified" in text.replace("    1-5", "  1-5")
    assert "6  verified: last" in text


def test_in_a_redacted_report_no_change_is_there_and_none_is_told_of_as_unwritten() -> None:
    told = redacted(report(finding(fixes=tuple(unwritten(*NO_WAYS)))))
    assert "do not fit" not in fixes.render(told, "report.json", "", width=100)


IMPORTED = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,3 @@\n import os\n+import torch\n \n"
MOVED = "@@ -10,4 +11,4 @@\n a\n b\n-c\n+d\n e\n"


@pytest.mark.parametrize(("patch", "line"), [(IMPORTED + MOVED, 12), (IMPORTED, 2), ("no patch", None)])
def test_a_change_of_another_file_is_told_by_the_line_that_it_takes_away(patch: str, line: int | None) -> None:
    assert proposals._first_line(patch) == line  # pyright: ignore[reportPrivateUsage]
