"""What a trace says of a small program, in the fewest words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import whynan
from whynan.config import Options
from whynan.run.guarded_capture import CaptureOptions
from whynan.run.region import Region

if TYPE_CHECKING:
    from whynan.records import Finding, Report


def traced(program: Callable[[], Any], **options: Any) -> Report:
    """The report of a program run inside a trace."""
    with whynan.trace(**options) as trace:
        program()
    return trace.report


def only(report: Report) -> Finding:
    """The one finding of a report that must have exactly one."""
    assert len(report.findings) == 1, [(f.op, f.phase, f.birth, f.message) for f in report.findings]
    return report.findings[0]


def sinks(finding: Finding) -> set[tuple[str, str | None]]:
    """Kind and name of everything that a finding reached."""
    return {(r.kind, r.name) for r in finding.reaches}


def code(finding: Finding) -> str | None:
    """The expression that a finding names."""
    return None if finding.site is None else finding.site.code


def watched(program: Callable[[], Any], **told: Any) -> Region:
    """A region that has run a program, told more than its options say; what the program raises is raised."""
    region = Region(Options(), command="region", watched=CaptureOptions(**told), quiet=True)
    with region:
        program()
    return region
