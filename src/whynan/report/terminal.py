"""The terminal report: what, where, why, from where, reaches, fix; about twenty lines a finding."""

# pyright: strict

from __future__ import annotations

import io
import os
import shutil
import sys
from typing import TYPE_CHECKING, Final, TextIO

from whynan.report import wording
from whynan.report.closing import closing
from whynan.report.excerpt import Sources, excerpt
from whynan.report.layout import Page
from whynan.report.proposals import proposed
from whynan.rules.data import data_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.records import Finding, Report
    from whynan.report.excerpt import LineOf

_UNSEEN: Final = 100
"""The width where no terminal says another."""
_WIDEST: Final = 120
"""Sentences longer than this are hard to read."""

_SEVERITY: Final = {"error": "bold red", "warning": "bold yellow", "info": "bold"}


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
        proposed(page, finding, told[: number - 1], report, show_all=show_all, written=written)
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
