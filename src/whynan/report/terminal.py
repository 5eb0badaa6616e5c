"""The terminal report: what, where, why, from where, reaches, fix; about twenty lines a finding."""

# pyright: strict

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Final, TextIO

from whynan.records.intents import UNFIT
from whynan.report import wording
from whynan.report.closing import closing
from whynan.report.excerpt import Sources, excerpt
from whynan.report.layout import Page
from whynan.report.values import count_text
from whynan.rules.data import data_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whynan.records import Finding, Fix, Report
    from whynan.report.excerpt import LineOf

_UNSEEN: Final = 100
"""The width where no terminal says another."""
_WIDEST: Final = 120
"""Sentences longer than this are hard to read."""
_PATCH_LINES: Final = 16
_FIXES_SHOWN: Final = 3
_MOST_FIXES: Final = 16
_IN_JSON: Final = "the JSON report has them all"

_SEVERITY: Final = {"error": "bold red", "warning": "bold yellow", "info": "bold"}
_STATUS: Final = {"verified": "green", "distorting": "yellow", "rejected": "red", "unverified": "yellow"}


def show(report: Report, *, show_all: bool = False, to: TextIO | None = None, written: str | None = None) -> None:
    """Print a report to standard output, as wide as the terminal and in its encoding, in colour on a terminal.

    `to`: another stream to print to. `written`: the file that has the report's document.
    """

    def told(width: int | None, color: bool, encoding: str) -> str:
        return render(report, width=width, show_all=show_all, color=color, encoding=encoding, written=written)

    put(told, to)


def put(told: Callable[[int | None, bool, str], str], to: TextIO | None = None) -> None:
    """Print what `told` makes of the width of an output, whether it is in colour, and its encoding."""
    out: TextIO | None = to or sys.stdout
    if out is None or out.closed:  # pyright: ignore[reportUnnecessaryComparison] (so it is without a console)
        return
    encoding = out.encoding or "utf-8"  # pyright: ignore[reportUnnecessaryComparison] (io.StringIO has none)
    _write(out, told(_width(out), _in_color(out), encoding) + "\n")


def render(
    report: Report,
    *,
    width: int | None = None,
    show_all: bool = False,
    source: LineOf | None = None,
    color: bool = False,
    encoding: str = "utf-8",
    written: str | None = None,
) -> str:
    """The report as text of lines at most `width` cells wide.

    Args:
        report: what is to be told.
        width: 32 at least; the terminal's, and 120 at most, where none is given.
        show_all: tell of the bad numbers that did no harm too, and of the fixes that were rejected.
        source: gives a line of a file; by default from the file, if it still is what it was in the run.
        color: with the terminal's colour codes.
        encoding: of the output; what it cannot write is put plainer.
        written: the file that has the report's document, from which a fix is applied.
    """
    page = Page(width or min(shutil.get_terminal_size((_UNSEEN, 24)).columns, _WIDEST), encoding)
    line_of = source or Sources(report.run.sources).line
    told = [*report.findings, *report.damaging, *(report.absorbed if show_all else ())]
    for number, finding in enumerate(told, 1):
        right = _versions(report) if number == 1 else f"{number} of {len(told)}"
        like = wording.told_before(finding, told[: number - 1])
        _finding(
            page, finding, report, right, line_of, None if like is None else (told[like], f"{like + 1} of {len(told)}")
        )
        _fixes(page, finding, told[: number - 1], show_all=show_all, written=written)
        page.blank()
    closing(page, report, show_all=show_all)
    return page.finish(color=color)


def _width(out: TextIO) -> int | None:
    """The width of the terminal that an output is; None where it is none, or a variable says another."""
    if os.environ.get("COLUMNS", "").isdecimal() or not out.isatty():
        return None
    try:
        return min(os.get_terminal_size(out.fileno()).columns, _WIDEST) or None
    except OSError:
        return None


def _versions(report: Report) -> str:
    versions, inference = report.run.versions, report.run.inference
    engine = "torch" if inference is None else "onnxruntime" if inference.engine == "onnxruntime" else "onnx"
    # the part behind the plus is how it was built, which the device says better
    named = [f"{name} {versions[name].split('+')[0]}" for name in ("whynan", engine) if name in versions]
    return " · ".join([*named, report.run.device])


def _finding(
    page: Page, finding: Finding, report: Report, right: str, line_of: LineOf, like: tuple[Finding, str] | None
) -> None:
    """One finding; of one at the expression of an earlier one (`like`, and which) only what is different."""
    raised = report.run.exception is not None
    page.heading(wording.headline(finding, raised=raised), right, _SEVERITY[finding.severity])
    page.blank()
    _born(page, finding, line_of, "" if like is None else like[1])
    lost = finding.birth is None and finding.element.value is None
    page.row("element", wording.element(finding.element, entered=finding.birth == "entered", lost=lost))
    if like is None:
        _operands(page, finding, report)
    if finding.data is not None and finding.birth not in ("entered", "literal"):
        page.row("data", data_text(finding.data))
    page.row("why", (f"{finding.rule} {finding.name}", "bold"), f": {finding.message}")
    if finding.explanation and (like is None or finding.explanation != like[0].explanation):
        page.row("", finding.explanation)
    for number, cause in enumerate(wording.causes(finding, None if like is None else like[0])):
        page.row("" if number else "from", cause)
    if then := wording.turned(finding):
        page.row("then", then)
    if again := wording.repeats(finding):
        page.row("again", again)
    page.items("reaches", wording.reached(finding, raised=raised), " · ")
    if wrong := wording.finite_but_wrong(finding):
        page.row("", wrong)


def _born(page: Page, finding: Finding, line_of: LineOf, like: str) -> None:
    # of silent damage nothing was born
    page.items("at" if finding.birth is None else "born", wording.born(finding), "  ")
    op = finding.op or ""
    if like:
        page.row("", f"the expression of {like}{f', {op}' if op else ''}")
        return
    lines = () if finding.site is None else excerpt(finding.site, line_of)
    for number, line in enumerate(lines, 1):
        page.code(line, op if number == len(lines) else "")
    if op and finding.site is not None and not lines:
        page.row("", op)
    if finding.site is not None and (node := wording.node(finding)):
        page.row("node", node)
    if finding.made_of:
        page.row("", finding.made_of)
    if finding.library_site is not None:
        page.items("inside", wording.place(finding.library_site), "  ")
        for line in excerpt(finding.library_site, line_of):
            page.code(line)


def _operands(page: Page, finding: Finding, report: Report) -> None:
    forward, here = wording.operands(finding.forward_operands), wording.operands(finding.element.operands)
    page.items("", forward, "   ")
    if forward and here:
        here[0] = f"in the backward: {here[0]}"
    page.items("", here, "   ")
    if (lost := wording.gone(finding)) and report.run.replay.kind == "none":
        page.row(
            "", f"({', '.join(lost)}: overwritten or freed; explain(..., rerun=True) runs again to read such values)"
        )


def _unfit(finding: Finding) -> tuple[Fix, ...]:
    """The fixes of a finding that do not fit how the source is written, and tell no more than that."""
    found = tuple(fix for fix in finding.fixes if fix.patch is None and f" {UNFIT} " in fix.verdict.why)
    return found if len(finding.fixes) > 1 else ()


def _fixes(page: Page, finding: Finding, earlier: Sequence[Finding], *, show_all: bool, written: str | None) -> None:
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
    is_enough = best is not None and best.verdict.status == "verified"
    most = len(shown) if show_all else 1 if is_enough else min(max(proved, 1), _FIXES_SHOWN)
    most = min(most, _MOST_FIXES)
    for fix in shown[:most]:
        _fix(page, fix)
    if (more := len(shown) - most) > 0:
        page.row("", _more(shown[-more:], is_all=show_all or len(finding.fixes) > _MOST_FIXES))
    if rejected := len(fixes) - len(shown):
        what = count_text(rejected, "fix", "fixes")
        page.row("" if shown else "fix", f"{what} tried and rejected; --all shows {'it' if rejected == 1 else 'them'}")
    if hidden and not any(fix.verdict.status == "verified" for fix in shown):
        what = count_text(len(hidden), "known rewrite does", "known rewrites do")
        why = f"{what} not fit how it is written; --all shows {'it' if len(hidden) == 1 else 'them'}"
        page.row("" if fixes else "fix", why)
    unproved = any(f.patch and not _is_shown(f) for f in shown[:most])
    if unproved and written is None:
        page.row("", "the JSON report has the change that nothing proves")
    elif unproved and written is not None:
        page.row("", f"whynan fix {shlex.quote(written)} shows the change that nothing proves")
    if written is not None and any(f.patch and f.verdict.status in ("verified", "distorting") for f in shown):
        page.row("", f"whynan fix {shlex.quote(written)} --apply")


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


def _fix(page: Page, fix: Fix) -> None:
    verdict = fix.verdict
    edits = _edits(fix.patch or "") if _is_shown(fix) else []
    told = verdict.why if edits and verdict.why else fix.title
    page.row("fix", (verdict.status, _STATUS[verdict.status]), f": {told}")
    if verdict.why and not edits:
        page.row("", verdict.why)
    for line in edits[:_PATCH_LINES]:
        page.row("", (line, "green" if line.startswith("+") else "red"))
    if len(edits) > _PATCH_LINES:
        page.row("", f"... {len(edits) - _PATCH_LINES} more lines; the JSON report has the whole patch")


def _edits(patch: str) -> list[str]:
    """The lines that a patch takes away and adds, without the indentation that all of them share."""
    lines = patch.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith("@@")), 0)
    edits = [line for line in lines[begin:] if line.startswith(("+", "-"))]
    bodies = textwrap.dedent("\n".join(line[1:] for line in edits)).split("\n")
    return [f"{line[0]} {body}" for line, body in zip(edits, bodies, strict=False)]


def _in_color(out: TextIO) -> bool:
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _write(out: TextIO, text: str) -> None:
    """Write to an output whose reader may have gone; that is no reason to end the program, nor to alter its output."""
    try:
        out.flush()
        descriptor = _own_descriptor(out)
        if descriptor is None:
            out.write(text)
            out.flush()
            return
        # what could not be written must not stay in the buffer of the program's output, where the interpreter would
        # meet it again as it exits
        with os.fdopen(descriptor, "w", encoding=out.encoding, errors="backslashreplace") as copy:
            copy.write(text)
    except BrokenPipeError:
        return


def _own_descriptor(out: TextIO) -> int | None:
    """A second descriptor of an output; None where it has none, or where its encoding would begin anew with a mark."""
    if type(out) is not io.TextIOWrapper or "".encode(out.encoding):
        return None
    try:
        return os.dup(out.fileno())
    except OSError:
        return None
