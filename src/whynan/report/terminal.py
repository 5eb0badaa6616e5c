"""The terminal report: what, where, why, from where, reaches, fix; about twenty lines a finding."""

# pyright: strict

from __future__ import annotations

import hashlib
import linecache
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from whynan.floats import format_value
from whynan.report.text import array, bad_word, encodable, operand_text, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from whynan.records import ChainLink, Finding, Reach, Report, Site

    SourceLine = Callable[[str, int], str | None]

LABEL = 11
NARROWEST = 40
WIDEST = 120
MOST_CAUSES = 4
MOST_NAMES = 3


def show(report: Report, *, show_all: bool = False) -> None:
    """Print a report to standard output, as wide as the terminal and in its encoding."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    text = encodable(render(report, show_all=show_all), encoding)
    print(text, flush=True)


def render(
    report: Report, *, width: int | None = None, show_all: bool = False, source: SourceLine | None = None
) -> str:
    """The report as text; `source` gives a line of a file, by default from the file if it is still the run's."""
    wide = max(NARROWEST, min(WIDEST, width or shutil.get_terminal_size((100, 24)).columns))
    page = _Page(wide, source or _unchanged(report))
    for finding in report.findings:
        page.finding(finding, report)
    for finding in report.damaging:
        page.finding(finding, report)
    if show_all:
        for finding in report.absorbed:
            page.finding(finding, report)
    page.closing(report, show_all=show_all)
    return "\n".join(line.rstrip() for line in page.lines)


def _unchanged(report: Report) -> SourceLine:
    """Lines of files that still are what they were in the run; of others only what the report itself holds."""
    known = {s.file: s.sha256 for s in report.run.sources}

    def line(file: str, number: int) -> str | None:
        if file in known:
            try:
                if hashlib.sha256(Path(file).read_bytes()).hexdigest() != known[file]:
                    return None
            except OSError:
                return None
        return linecache.getline(file, number) or None

    return line


class _Page:
    def __init__(self, width: int, source: SourceLine) -> None:
        self.width = width
        self.source = source
        self.lines: list[str] = []

    def finding(self, finding: Finding, report: Report) -> None:
        """All of one finding."""
        self._headline(finding, report)
        self.lines.append("")
        self._born(finding)
        self._element(finding)
        why = finding.message if finding.rule == "WN000" else f"{finding.rule} {finding.name}: {finding.message}"
        self._labelled("why", why)
        if finding.explanation:
            self._continued(finding.explanation)
        self._from(finding)
        self._reaches(finding.reaches)
        for fix in finding.fixes:
            self._labelled("fix", f"{fix.verdict.status}: {fix.title}")
        self.lines.append("")

    def _headline(self, finding: Finding, report: Report) -> None:
        what = _headline(finding)
        versions = report.run.versions
        parts = [f"whynan {versions.get('whynan', '')}".strip()]
        if "torch" in versions:
            parts.append(f"torch {versions['torch'].split('+')[0]}")
        right = " · ".join([*parts, report.run.device])
        gap = self.width - len(what) - len(right)
        self.lines.append(what + " " * gap + right if gap >= 2 else what)

    def _born(self, finding: Finding) -> None:
        site = finding.site
        if site is None:
            self._labelled("born", f"{finding.op or 'a value'} (its line is not known)")
            return
        self._labelled("born", _place(site) + _backward(finding))
        self._source(site, finding.op)
        if finding.library_site is not None:
            self._labelled("inside", _place(finding.library_site))
            self._source(finding.library_site, None)

    def _source(self, site: Site, op: str | None) -> None:
        text = self.source(site.file, site.line)
        note = f"  {op}" if op else ""
        indent = " " * (LABEL + 4)
        if text is None:
            if site.code:
                self._wrapped(shown(site.code) + note, indent)
            return
        stripped = text.rstrip("\n").expandtabs(1)
        lead = len(stripped) - len(stripped.lstrip())
        body = shown(stripped.strip())
        self.lines.append(indent + body)
        if site.column is None:
            if op:
                self.lines.append(indent + op)
            return
        start = max(site.column - 1 - lead, 0)
        end = site.end_column - 1 - lead if site.end_column and site.end_line == site.line else len(body)
        marks = "^" * max(min(end, len(body)) - start, 1)
        line = indent + " " * start + marks
        if len(line) + len(note) <= self.width:
            self.lines.append(line + note)
        else:
            self.lines.append(line)
            if op:
                self.lines.append(indent + op)

    def _element(self, finding: Finding) -> None:
        element = finding.element
        where = str(list(element.index)) if element.index else ("the value" if element.index == () else "an element")
        name = f" of {shown(element.tensor)}" if element.tensor else ""
        others = element.count - 1
        more = f", and {others:,} more of {element.total:,}" if others > 0 else f", 1 of {element.total:,}"
        self._labelled("element", f"{where}{name} of {array(element.dtype, element.shape)}{more}")
        forward = [
            f"{shown(o.expression or o.name)} = {format_value(o.value)}"
            for o in finding.forward_operands
            if o.value is not None
        ]
        here = [operand_text(o) for o in element.operands]
        if forward:
            self._continued("   ".join(forward))
            if here:
                self._continued("in the backward: " + "   ".join(here))
        elif here:
            self._continued("   ".join(here))

    def _from(self, finding: Finding) -> None:
        causes = [c for c in finding.chain if c.role == "cause"][-MOST_CAUSES:]
        for i, link in enumerate(causes):
            text = shown(link.summary) + _at(link)
            if i == 0:
                self._labelled("from", text)
            else:
                self._continued(text)
        steps = [c for c in finding.chain if c.role == "step"]
        met = [s for s in steps if s.phase == "accumulation"]
        if met:
            self._labelled("then", f"{met[0].op} adds it into a gradient{_at(met[0])}")

    def _reaches(self, reaches: Iterable[Reach]) -> None:
        groups: dict[str, list[Reach]] = {}
        for reach in reaches:
            groups.setdefault(reach.kind, []).append(reach)
        parts = [_group(kind, found) for kind, found in groups.items()]
        if parts:
            self._labelled("reaches", " · ".join(parts))

    def closing(self, report: Report, *, show_all: bool) -> None:
        """The verdict and what else there is to say."""
        found = len(report.findings)
        errors = sum(f.severity == "error" for f in report.findings)
        warnings = found - errors + len(report.damaging)
        seen = f"{report.coverage.events:,} operations looked at"
        if report.verdict == "clean":
            self.lines.append(f"clean: no bad number reached a loss, a gradient, a parameter or an output ({seen})")
        elif report.verdict == "inconclusive":
            self.lines.append(f"inconclusive: a bad number reached a sink, and its birth was not seen ({seen})")
        else:
            counts = [f"{errors} error{'s' * (errors != 1)}"] if errors else []
            counts += [f"{warnings} warning{'s' * (warnings != 1)}"] if warnings else []
            self.lines.append(f"{report.verdict}: {', '.join(counts)} ({seen})")
        if report.absorbed_count and not show_all:
            plural = "s were" if report.absorbed_count != 1 else " was"
            absorbed = f"{report.absorbed_count} birth{plural} absorbed and did no harm"
            self._wrapped(f"{absorbed}; show(show_all=True) lists them", "")
        if report.coverage.skipped_steps:
            self._wrapped(f"{report.coverage.skipped_steps} step(s) were skipped by a loss scaler, as it should", "")
        replay = report.run.replay
        if replay.kind != "none":
            word = "faithful" if replay.faithful else "not faithful, and not used"
            self._wrapped(f"second run: {word} ({shown(replay.why)})", "")
        for note in report.coverage.notes:
            self._wrapped(f"note: {shown(note)}", "")
        for pattern in report.unused_allows:
            self._wrapped(f"note: allow({shown(pattern)}) excused nothing", "")
        if report.run.exception:
            self._wrapped(f"the program raised {shown(report.run.exception)}", "")

    def _labelled(self, label: str, text: str) -> None:
        self._wrapped(text, f"  {label}".ljust(LABEL), " " * LABEL)

    def _continued(self, text: str) -> None:
        self._wrapped(text, " " * LABEL)

    def _wrapped(self, text: str, first: str, rest: str | None = None) -> None:
        self.lines += textwrap.wrap(
            shown(text), self.width, initial_indent=first, subsequent_indent=first if rest is None else rest,
            break_long_words=True, break_on_hyphens=False,
        ) or [first]  # fmt: skip


def _headline(finding: Finding) -> str:
    word = bad_word(finding.element.value)
    if finding.fate == "absorbed":
        where = "absorbed"
    elif finding.fate == "damaging":
        where = "turned into a wrong finite value"
    else:
        kinds = [r.kind for r in finding.reaches]
        # what a backward birth spoils first is a gradient, whatever else it reaches
        words = [w for w in _SINK_WORDS if not (w[0] == "loss" and finding.phase == "backward")]
        where = next((f"in {name}" for kind, name in words if kind in kinds), "in the run")
    step = f" at step {finding.step}" if finding.step is not None else ""
    warning = "warning: " if finding.severity == "warning" else ""
    return f"{warning}{word} {where}{step}"


_SINK_WORDS = (
    ("loss", "the loss"),
    ("gradient", "the gradients"),
    ("parameter", "the parameters"),
    ("output", "the output"),
    ("buffer", "a buffer"),
    ("observed", "a value that was read"),
)


def _place(site: Site) -> str:
    column = f":{site.column}" if site.column is not None else ""
    inside = f"  in {shown(site.function)}" if site.function and site.function != "<module>" else ""
    module = f"  ({shown(site.module)})" if site.module else ""
    return f"{shown(site.file)}:{site.line}{column}{inside}{module}"


def _backward(finding: Finding) -> str:
    if finding.phase == "backward":
        return f"  (in its backward, {finding.grad_fn})" if finding.grad_fn else "  (in its backward)"
    if finding.phase in ("accumulation", "optimizer", "buffer", "collective", "data"):
        return f"  ({finding.phase})"
    return ""


def _at(link: ChainLink) -> str:
    return f"  at {shown(link.site.file)}:{link.site.line}" if link.site is not None else ""


def _group(kind: str, found: list[Reach]) -> str:
    names = [shown(r.name) for r in found if r.name]
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    if kind == "loss":
        return "the loss"
    if kind in ("gradient", "parameter", "buffer"):
        plural = "s" if len(found) != 1 else ""
        worst = f", {found[0].bad:,} of {found[0].total:,} elements" if len(found) == 1 else ""
        return f"{len(found)} {kind}{plural} ({listed or 'unnamed'}{worst})"
    if kind == "output":
        return f"{listed or 'the output'} ({found[0].bad:,} of {found[0].total:,})"
    return f"read by the program ({listed})" if names else "read by the program"
