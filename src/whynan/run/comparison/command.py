"""A comparison as the command and ``whynan.diff`` ask for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from whynan.errors import UsageError

if TYPE_CHECKING:
    from whynan.config import Options
    from whynan.records import Report
    from whynan.run.comparison.comparison import Found
    from whynan.run.comparison.settings import Request


def compared(request: Request, command: str, options: Options) -> Report:
    """The report of a comparison; raises ``UsageError`` where the two cannot be compared."""
    # numpy and the frameworks are loaded for who compares something
    from whynan.run.comparison.comparison import compare
    from whynan.run.comparison.report import report_of

    if options.memory is not None:
        request = replace(request, budget=options.memory // 2)
    found = compare(request)
    report = report_of(found, command)
    return _led_back(report, found, options) if found.both_bad else report


def _led_back(report: Report, found: Found, options: Options) -> Report:
    """A report of runs that are bad on both sides, with the birth of the bad number where B is an ONNX model."""
    from whynan.run.comparison.sources import OnnxSource

    for source, feeds in zip(reversed(found.sources), (found.feeds.b, found.feeds.a), strict=True):
        if isinstance(source, OnnxSource):
            from whynan.run.onnx.inference import explain_run

            try:
                explained = explain_run(source.label, (feeds,), {}, options)
            except UsageError:
                return report
            return report.model_copy(update={"findings": explained.findings})
    return report
