"""A divergence in the terminal report: the operation, its numbers on both sides, how the error grows, whence it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from whynan.report import wording
from whynan.report.excerpt import excerpt
from whynan.report.wording import count_text, index_text, share_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.records import Divergence, Finding, Growth, OutputError, Report
    from whynan.records.base import Number
    from whynan.report.excerpt import LineOf
    from whynan.report.page import Page

_CURVE: Final = 10
_BAR: Final = 24
_LEAST: Final = -8
"""The power of ten at which a bar begins."""
_NAMES_SHOWN: Final = 4
_ALIGNED_BY: Final = {
    "input": "as inputs",
    "metadata": "by the exporter's metadata",
    "name": "by name",
    "module": "by module",
    "topology": "by topology",
    "fingerprint": "by their numbers",
    "output": "as outputs",
}


def add_divergence(page: Page, finding: Finding, found: Divergence, right: str, line_of: LineOf) -> None:
    """One divergence: what, where, numbers, why, how it grows, and where it comes from."""
    page.heading(f"B parts from A at {finding.op} {finding.node or ''}".rstrip(), right, "bold red")
    page.blank()
    page.row("in B", f"{finding.op} {finding.node}, which makes {finding.value}")
    if found.nodes:
        page.row("", f"it stands with {_listed(found.nodes)} for one operation of A")
    if finding.site is not None:
        page.items("", wording.place(finding.site), "  ")
        for line in excerpt(finding.site, line_of):
            page.code(line)
    page.row("in A", f"{found.other_op} {found.other_node}, which makes {found.other_value}")
    if found.other_site is not None:
        page.items("", wording.place(found.other_site), "  ")
    introduced = found.introduced
    index = index_text(introduced.index)
    shape = wording.array_of(finding.element.dtype, finding.element.shape)
    many = share_text(found.count, found.total)
    page.row("element", f"{index} of {shape}{f'; {many} are out of line' if many else ''}")
    exact = "" if introduced.exact is None else f"   exactly {_number(introduced.exact)}"
    page.row("", f"A {_number(introduced.a)}   B {_number(introduced.b)}{exact}")
    for operand in finding.element.operands:
        place = "" if operand.index is None else index_text(operand.index)
        page.row("", f"of {operand.name}{place} = {value_text(operand.value)}")
    page.row(
        "error",
        f"introduced {_number(introduced.max_abs)} ({_number(introduced.max_rel)} relative"
        f"{_ulps(introduced.max_ulp)}), propagated {_number(found.propagated.max_abs)}; "
        f"rounding may make {_number(found.tolerance)} here",
    )
    page.row("why", *_rule(finding), found.why)
    if finding.explanation:
        page.row("", finding.explanation)
    for number, attribution in enumerate(found.attributions):
        page.row("" if number else "from", f"{attribution.source}: {attribution.evidence}")
    for number, step in enumerate(found.growth[:_CURVE]):
        page.row("" if number else "grows", _step(step))


def summary(report: Report) -> str:
    """What the verdict says of two runs."""
    if report.verdict == "divergent":
        return "the two runs part, and not by rounding"
    if report.verdict == "nonfinite":
        return "both runs are NaN or infinite in the same places, which is no agreement"
    return "the two runs agree within what their number formats are entitled to lose"


def closing_lines(report: Report) -> Iterator[str]:
    """How far the outputs are apart, and how much was aligned, by what."""
    for output in report.outputs:
        yield _output(output)
    aligned = report.coverage.aligned
    if aligned is None:
        return
    by = ", ".join(f"{count:,} {_ALIGNED_BY.get(way, way)}" for way, count in aligned.by.items())
    yield f"aligned: {aligned.values:,} of {count_text(aligned.of, 'value')} of B{f' ({by})' if by else ''}"
    if aligned.unaligned:
        left = aligned.of - aligned.values - len(aligned.unaligned)
        more = f", and {left:,} more" if left > 0 else ""
        yield f"not aligned, and compared only by what they lead to: {', '.join(aligned.unaligned)}{more}"


def _output(output: OutputError) -> str:
    if output.max_abs is None:
        return f"output {output.name}: not comparable"
    bad = f", {count_text(output.nan_mismatch, 'element')} bad on one side alone" if output.nan_mismatch else ""
    relative = "" if output.max_rel is None else f" ({_number(output.max_rel)} relative)"
    return f"output {output.name}: at most {_number(output.max_abs)} apart{relative}{bad}"


def _step(step: Growth) -> str:
    size = step.max_rel
    if size is None or not math.isfinite(size):
        return f"{'#' * _BAR} {_number(size):>9}  {step.op} {step.value}"
    filled = 0 if size <= 0 else round(_BAR * min(max((math.log10(size) - _LEAST) / -_LEAST, 0.0), 1.0))
    return f"{'#' * filled:<{_BAR}} {_number(size):>9}  {step.op} {step.value}"


def _rule(finding: Finding) -> list[str]:
    return [] if finding.rule == "WN000" else [f"{finding.rule} {finding.name}: "]


def _ulps(ulps: Number | None) -> str:
    return "" if ulps is None else f", {ulps:,.3g} ulp"


def _number(value: Number | bool | None) -> str:
    if value is None:
        return "left out"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}" if not value or 1e-3 <= abs(value) < 1e6 else f"{value:.4g}"
    return value_text(value)


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
