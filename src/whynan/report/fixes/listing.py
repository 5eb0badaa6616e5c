"""The fixes of a report as text: numbered, each with its verdict, its change, and what choosing it would do."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable
from typing import Final, TextIO

from whynan.records import Finding, Fix, Report
from whynan.report.fixes.proposals import Offer, best, offers
from whynan.report.fixes.trial import STYLES
from whynan.report.page import Page, Piece
from whynan.report.redaction import is_redacted
from whynan.report.terminal import print_page
from whynan.report.wording import count_text, headline, reason_text

_LINES_SHOWN: Final = 40
_AT: Final = 7
_CHANGE_AT: Final = 9
_FEW_WORDS: Final = 4
_MARKS: Final = {"+": "green", "-": "red", "@": "cyan"}


def show(report: Report, path: str, why_none: str, to: TextIO | None = None) -> None:
    """Print the fixes of a report, whose file `path` is; `why_none`: what is said where there are none."""
    print_page(
        lambda width, color, encoding: render(report, path, why_none, width=width, color=color, encoding=encoding), to
    )


def render(
    report: Report, path: str, why_none: str, *, width: int | None = None, color: bool = False, encoding: str = "utf-8"
) -> str:
    """The fixes of a report as text of lines at most `width` cells wide; 32 at least."""
    page, told = Page(width, encoding), offers(report)
    if not told:
        page.line(why_none)
        return page.finish(color=color)
    n_findings = len({id(offer.finding) for offer in told})
    page.heading(
        f"{count_text(len(told), 'fix', 'fixes')} of {count_text(n_findings, 'finding')}", report.run.command, "bold"
    )
    raised, lacks = report.run.exception is not None, is_redacted(report)
    for alike in _group_unwritten(told, lacks=lacks):
        page.blank()
        if len(alike) > 1:
            _unwritten(page, alike, told, raised=raised)
        else:
            _offer(page, alike[0], raised=raised, lacks=lacks)
    page.blank()
    for line in _closing(told, path):
        page.line(line)
    return page.finish(color=color)


def show_change(heading: str, verdict: str, patch: str, to: TextIO | None = None) -> None:
    """Print a change that is about to be made, the whole of it, under a heading and with the verdict of its fix."""

    def told(width: int | None, color: bool, encoding: str) -> str:
        page = Page(width, encoding)
        page.line((heading, "bold"))
        if verdict:
            page.line(verdict)
        for line in _body(patch):
            page.verbatim(line, at=2, style=_MARKS.get(line[:1], ""))
        return page.finish(color=color)

    print_page(told, to)


def verdict_text(fix: Fix) -> str:
    """What proof found, and why, on one line."""
    verdict = fix.verdict
    why = reason_text(verdict)
    return f"{verdict.status}: {why}" if why else verdict.status


def _offer(page: Page, offer: Offer, *, raised: bool, lacks: bool) -> None:
    fix, finding = offer.fix, offer.finding
    title: list[Piece] = [(fix.verdict.status, STYLES[fix.verdict.status]), f": {fix.title}"]
    page.entry(f"{offer.number:>3}", *title, at=_AT)
    page.entry("", f"{finding.rule} {finding.name}{_place(finding)}: {headline(finding, raised=raised)}", at=_AT)
    if why := reason_text(fix.verdict):
        page.entry("", why, at=_AT)
    lines = _body(fix.patch or "")
    for line in lines[:_LINES_SHOWN]:
        page.verbatim(line, at=_CHANGE_AT, style=_MARKS.get(line[:1], ""))
    if len(lines) > _LINES_SHOWN:
        page.entry("", f"... {len(lines) - _LINES_SHOWN:,} more lines; the JSON report has them all", at=_CHANGE_AT)
    page.entry("", _choosing(offer, lacks=lacks), at=_AT)


def _group_unwritten(told: tuple[Offer, ...], *, lacks: bool) -> list[list[Offer]]:
    """The offers, those in one list which could not be written for one finding."""
    found: list[list[Offer]] = []
    for offer in told:
        before = found[-1][-1] if found else None
        same = before is not None and before.finding is offer.finding
        if not lacks and same and _is_unwritten(offer.fix) and before is not None and _is_unwritten(before.fix):
            found[-1].append(offer)
        else:
            found.append([offer])
    return found


def _is_unwritten(fix: Fix) -> bool:
    return fix.patch is None and fix.kind != "setting" and fix.verdict.status != "rejected"


def _unwritten(page: Page, alike: list[Offer], told: tuple[Offer, ...], *, raised: bool) -> None:
    """What could not be written, and why not, in few lines."""
    first, finding = alike[0], alike[0].finding
    others = any(offer.finding is finding and offer not in alike for offer in told)
    ways = count_text(len(alike), "other way" if others else "way", "other ways" if others else "ways")
    title: list[Piece] = [(first.fix.verdict.status, STYLES[first.fix.verdict.status]), f": {ways} do not fit"]
    page.entry(f"{first.number}-{alike[-1].number}".rjust(3), *title, at=_AT)
    page.entry("", f"{finding.rule} {finding.name}{_place(finding)}: {headline(finding, raised=raised)}", at=_AT)
    for line in _reasons([offer.fix.verdict.why for offer in alike]):
        page.entry("", line, at=_AT)


def _reasons(whys: Iterable[str]) -> list[str]:
    """Different reasons, those in one line that begin with the same few words."""
    found: list[list[list[str]]] = []
    for words in (why.split(" ") for why in dict.fromkeys(whys) if why):
        same = next((group for group in found if len(_shared([*group, words])) >= _FEW_WORDS), None)
        if same is None:
            found.append([words])
        else:
            same.append(words)
    return [_reason(group) for group in found]


def _reason(group: list[list[str]]) -> str:
    shared = _shared(group)
    ends = [" ".join(words[len(shared) :]) for words in group]
    return " ".join([*shared, "; ".join(ends)]) if len(group) > 1 else " ".join(group[0])


def _shared(group: list[list[str]]) -> list[str]:
    """The words that all begin with, and that none is made of alone."""
    most = min(map(len, group)) - 1
    alike = itertools.takewhile(lambda words: len(set(words)) == 1, zip(*group, strict=False))
    return [words[0] for words in itertools.islice(alike, most)]


def _place(finding: Finding) -> str:
    if finding.node is not None:
        return f" at node {finding.node}"
    return "" if finding.site is None else f" at {finding.site.file}:{finding.site.line}"


def _choosing(offer: Offer, *, lacks: bool) -> str:
    """What choosing a fix would do; `lacks`: the report was made without the changes themselves."""
    fix, number = offer.fix, offer.number
    if fix.kind == "setting":
        return "a setting, which is changed by hand"
    if fix.verdict.status == "rejected":
        return "rejected, and not made"
    if fix.patch is None and lacks:
        return "the report was made without the change itself (--redact); that of the run has it"
    if fix.patch is None:
        return "not written, and not made"
    if fix.kind == "graph":
        does = f"--choose {number} --output FILE.onnx writes a model with it"
    else:
        does = f"--choose {number} --apply edits {offer.file or 'the file'}"
    return does + _WARNINGS.get(fix.verdict.status, "")


_WARNINGS: Final = {
    "guarded": ", and gives numbers where no exact ones are known",
    "distorting": ", and changes healthy numbers",
    "unverified": ", and nothing proves it",
}


def _closing(told: tuple[Offer, ...], path: str) -> list[str]:
    command = f"whynan fix {shlex.quote(path)}"
    lines: list[str] = []
    if made := best(told, "source"):
        lines.append(f"{command} --apply makes fix {made.number}; --patch FILE writes it as a patch")
    if best(told, "graph"):
        lines.append(f"{command} --output FILE.onnx writes the model with the first verified fix of each finding")
    if not lines:
        lines.append("no fix is verified: none is made but by --choose")
    return lines


def _body(patch: str) -> list[str]:
    """The lines of a patch without the names of files above them."""
    lines = patch.split("\n")
    begin = next((number for number, line in enumerate(lines) if line.startswith("@@")), 0)
    return [line.rstrip("\r") for line in lines[begin:] if line]
