"""The fixes of a finding in the terminal report, and the number that each is chosen by."""

from __future__ import annotations

import itertools
import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from whynan.records import APPLICABLE, Finding, Fix, Report
from whynan.report.page import Page
from whynan.report.wording import count_text, reason_text

# -- The fixes of a report by the number that each is chosen by --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """One fix of a report by the number, from 1, that it is chosen by, and the finding that it mends.

    ``file``: of the run, the one that it edits.
    """

    number: int
    finding: Finding
    fix: Fix
    file: str | None


def offers(report: Report) -> tuple[Offer, ...]:
    """The fixes of all that did harm, in the order of the findings; what was absorbed needs none.

    A change of the source that mends several findings is offered once, for the first of them.
    """
    found: list[tuple[Finding, Fix]] = []
    known: set[str] = set()
    for finding in (*report.findings, *report.damaging):
        for fix in finding.fixes:
            change = fix.patch if fix.kind == "source" else None
            if change is None or change not in known:
                found.append((finding, fix))
            known.update(() if change is None else (change,))
    return tuple(Offer(n, finding, fix, edited_file(report, finding, fix)) for n, (finding, fix) in enumerate(found, 1))


def best(told: Iterable[Offer], kind: str) -> Offer | None:
    """The fix that is made where none is chosen: the first verified one of a kind, else the first guarded one."""
    of_kind = [offer for offer in told if offer.fix.kind == kind]
    return next((o for status in APPLICABLE for o in of_kind if o.fix.verdict.status == status), None)


def edited_file(report: Report, finding: Finding, fix: Fix) -> str | None:
    """The file of the run that a fix edits: the one that its change names, else that of its finding."""
    return _named_file(report, fix.patch or "") or (None if finding.site is None else finding.site.file)


def _named_file(report: Report, patch: str) -> str | None:
    """The file of the run that a patch names first."""
    header = next((line for line in patch.splitlines() if line.startswith("+++ ")), "")
    name = header.removeprefix("+++ ").rstrip("\t").removeprefix("b/").lstrip("/")
    known = (source.file for source in report.run.sources if source.file.replace("\\", "/").lstrip("/") == name)
    return next(known, None)


def _files(patch: str) -> list[str]:
    """The parts of a patch, each of one file."""
    lines = patch.splitlines(keepends=True)
    heads = [
        number
        for number, (line, following) in enumerate(itertools.pairwise(lines))
        if line.startswith("--- ") and following.startswith("+++ ")
    ]
    ends = [*heads[1:], len(lines)] if heads else []
    return ["".join(lines[begin:end]) for begin, end in zip(heads, ends, strict=True)] or [patch]


def choice_of(report: Report, fix: Fix) -> str:
    """How a fix of the source, or one with the same change, is chosen: nothing where it is made without being asked."""
    told = offers(report)
    made = best(told, "source")
    number = next((o.number for o in told if o.fix.kind == "source" and o.fix.patch == fix.patch), None)
    return "" if number is None or (made is not None and made.number == number) else f" --choose {number}"


# -- The fixes of a finding in the terminal report: the change of the best with its verdict, and a count of the
# others


_STATUS: Final = {
    "verified": "green",
    "guarded": "green",
    "distorting": "yellow",
    "rejected": "red",
    "unverified": "yellow",
}
_PATCH_LINES: Final = 16
_NEAR: Final = 3
"""A change within so many lines of what is told above needs no number."""
_FIXES_SHOWN: Final = 3
_MOST_FIXES: Final = 16
_IN_JSON: Final = "the JSON report has them all"


def _unfit(finding: Finding) -> tuple[Fix, ...]:
    """The rewrites of other expressions than a finding's, which reports of earlier versions have."""
    return tuple(fix for fix in finding.fixes if fix.patch is None and fix.verdict.reason == "unfit")


def add_fixes(
    page: Page, finding: Finding, earlier: Sequence[Finding], report: Report, *, show_all: bool, written: str | None
) -> None:
    """The fixes of a finding with their verdicts; one that an earlier finding has by the number of that."""
    hidden = () if show_all else _unfit(finding)
    fixes = [fix for fix in finding.fixes if fix not in hidden]
    best = fixes[0] if fixes else None
    same = next((n for n, other in enumerate(earlier, 1) if best is not None and _is_same(best, other)), None)
    if best is not None and same is not None and not show_all:
        page.row("fix", (best.verdict.status, _STATUS[best.verdict.status]), f": the first of finding {same}")
        return
    shown = [fix for fix in fixes if show_all or fix.verdict.status != "rejected"]
    # beside one that is verified, or of those of which nothing is proved, one is enough
    proved = sum(fix.verdict.status != "unverified" for fix in shown)
    is_enough = best is not None and best.verdict.status in APPLICABLE
    most = len(shown) if show_all else 1 if is_enough else min(max(proved, 1), _FIXES_SHOWN)
    most = min(most, _MOST_FIXES)
    for fix in shown[:most]:
        _fix(page, fix, finding, report)
    if (more := len(shown) - most) > 0:
        page.row("", _more(shown[-more:], is_all=show_all or len(finding.fixes) > _MOST_FIXES))
    if rejected := len(fixes) - len(shown):
        if any(fix.kind != "setting" for fix in shown):
            what = f"{count_text(rejected, 'fix', 'fixes')} tried and rejected"
            page.row("", f"{what}; --all shows {'it' if rejected == 1 else 'them'}")
        else:
            what = "1 rewrite tried, which does not hold" if rejected == 1 else f"{rejected} rewrites tried, none holds"
            page.row("" if shown else "fix", f"{what}; --all shows why")
    unproved = any(f.patch and not _is_shown(f) for f in shown[:most])
    if unproved and written is None:
        page.row("", "the JSON report has the change that nothing proves")
    elif unproved and written is not None:
        page.row("", f"whynan fix {shlex.quote(written)} shows the change that nothing proves")
    ready = next((f for f in shown if f.patch and f.verdict.status in (*APPLICABLE, "distorting")), None)
    if written is not None and ready is not None:
        choice = choice_of(report, ready) if ready.kind == "source" else ""
        page.row("", f"whynan fix {shlex.quote(written)}{choice} --apply")


def _more(fixes: Sequence[Fix], *, is_all: bool) -> str:
    """How many fixes are not shown, how many of them are proved, and what shows them."""
    where = _IN_JSON if is_all else f"--all shows {'it' if len(fixes) == 1 else 'them'}"
    verified = sum(fix.verdict.status == "verified" for fix in fixes)
    proved = "" if not verified else ", verified too" if verified == len(fixes) else f", {verified} of them verified"
    return f"and {count_text(len(fixes), 'more fix', 'more fixes')}{proved}; {where}"


def _is_same(fix: Fix, earlier: Finding) -> bool:
    """Whether a fix is the first of an earlier finding's that is shown, with the same outcome."""
    hidden = _unfit(earlier)
    first = next((each for each in earlier.fixes if each not in hidden), None)
    if first is None or first.verdict.status != fix.verdict.status:
        return False
    if fix.patch is None:
        # two edits of which the change is not there, as in a redacted report, may be different ones
        return fix.kind == "setting" and first == fix
    return first.patch == fix.patch


def _is_shown(fix: Fix) -> bool:
    """Whether the change of a fix is shown: one that nothing proves is not worth the room."""
    return fix.verdict.status != "unverified"


def _fix(page: Page, fix: Fix, finding: Finding, report: Report) -> None:
    verdict = fix.verdict
    parts = _files(fix.patch or "")
    edits = [_edits(part) if _is_shown(fix) else [] for part in parts]
    why = reason_text(verdict)
    told = why if any(edits) and why else fix.title
    page.row("fix", (verdict.status, _STATUS[verdict.status]), f": {told}")
    if why and not any(edits):
        page.row("", why)
    left = _PATCH_LINES
    for part, lines in zip(parts if fix.patch else (), edits, strict=False):
        if left > 0:
            _place(page, part, finding, report)
        for line in lines[: max(left, 0)]:
            page.row("", (line, "green" if line.startswith("+") else "red"))
        left -= len(lines)
    if left < 0:
        page.row("", f"... {-left} more lines; the JSON report has the whole patch")


def _place(page: Page, patch: str, finding: Finding, report: Report) -> None:
    """Say where the change of a file is, if that is not at the finding."""
    file, line = _named_file(report, patch), _first_line(patch)
    if finding.site is None:
        return
    if file is not None and file != finding.site.file:
        page.row("", f"in {file}" if line is None else f"in {file}:{line}")
    elif line is not None and abs(line - finding.site.line) > _NEAR:
        page.row("", f"at line {line}")


def _first_line(patch: str) -> int | None:
    """The line, in the file as it is, that a patch takes away first, or else adds to; None where there is none."""
    line, added = 0, None
    for text in patch.splitlines():
        if text.startswith("@@ -"):
            line = int(re.split("[ ,]", text.removeprefix("@@ -"), maxsplit=1)[0])
        elif line and text.startswith("-"):
            return line
        elif line and text.startswith("+"):
            added = added or line
        elif line:
            line += 1
    return added


def _edits(patch: str) -> list[str]:
    """The lines that a patch takes away and adds, without the indentation that all of them share."""
    lines = patch.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith("@@")), 0)
    edits = [line for line in lines[begin:] if line.startswith(("+", "-"))]
    bodies = textwrap.dedent("\n".join(line[1:] for line in edits)).split("\n")
    return [f"{line[0]} {body}" for line, body in zip(edits, bodies, strict=False)]
