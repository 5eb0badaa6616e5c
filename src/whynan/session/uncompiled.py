"""A second run without torch.compile: whether what is bad of a compiled region is born in eager operations too."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.records import Replay
from whynan.session.reruns import without_rerun
from whynan.traces.format import FAILED

if TYPE_CHECKING:
    from whynan.records import Finding, Report

_REGION: Final = "inductor.compiled_region"
_ONLY_COMPILED: Final = (
    " Run again without torch.compile, nothing bad was born: what the compiler made of the program differs from it "
    "there."
)


def born_in_a_region(report: Report) -> bool:
    """Whether a finding's operation is a whole compiled region, of which nothing more can be known."""
    return any(finding.op == _REGION for finding in report.findings)


def with_eager(first: Report, second: Report, *, failed: bool = False) -> Report:
    """The first run's report with what a run without torch.compile says of it: nothing bad, or where it is born.

    `failed`: an error of our own cut the second run short.
    """
    if failed:
        return without_rerun(first, FAILED)
    worst = next(iter(second.findings), None)
    if worst is not None:
        return _with(first, f"without torch.compile it is {_told(worst)}")
    if second.verdict not in ("clean", "damaged"):
        return _with(first, "without torch.compile it came to no verdict")
    findings = tuple(_only_compiled(finding) for finding in first.findings)
    return _with(first.model_copy(update={"findings": findings}), "without torch.compile nothing bad was born")


def _only_compiled(finding: Finding) -> Finding:
    if finding.op != _REGION:
        return finding
    return finding.model_copy(update={"explanation": finding.explanation + _ONLY_COMPILED})


def _told(finding: Finding) -> str:
    place = f" at {finding.site.file}:{finding.site.line}" if finding.site is not None else ""
    return f"{finding.rule} {finding.name}{place}: {finding.message}"


def _with(report: Report, why: str) -> Report:
    run = report.run.model_copy(update={"replay": Replay(kind="rerun", faithful=None, why=why)})
    return report.model_copy(update={"run": run})
