"""The verdict of a fix that the user brought: as text, question by question, and as a document for machines."""

from __future__ import annotations

from typing import Any, Final, TextIO

from whynan.floats.text import format_value
from whynan.records import FixVerdict
from whynan.records.trial import Trial
from whynan.report import json
from whynan.report.page import Page
from whynan.report.terminal import print_page
from whynan.report.wording import count_text, percent_text, reason_text

SCHEMA: Final = "whynan.trial/1"
SCHEMA_FILE: Final = "whynan.trial-1.json"
STYLES: Final = {
    "verified": "bold green",
    "guarded": "bold green",
    "distorting": "bold yellow",
    "rejected": "bold red",
    "unverified": "yellow",
}


def show(trial: Trial, to: TextIO | None = None) -> None:
    """Print the verdict, to standard output or to another stream."""
    print_page(lambda width, color, encoding: render(trial, width=width, color=color, encoding=encoding), to)


def render(trial: Trial, *, width: int | None = None, color: bool = False, encoding: str = "utf-8") -> str:
    """The verdict as text of lines at most `width` cells wide; 32 at least."""
    page = Page(width, encoding)
    verdict = trial.verdict
    page.line((verdict.status, STYLES[verdict.status]), f": {trial.change}")
    page.row("of", f"{trial.rule} {trial.name}{place_text(trial)}")
    if cured := cured_text(verdict):
        page.row("cured", cured)
    if kept := kept_text(verdict):
        page.row("kept", kept)
    if why := reason_text(verdict):
        page.row("why", why)
    return page.finish(color=color)


def place_text(trial: Trial) -> str:
    """Where the finding is that was to be mended: ``, at train.py:12``."""
    if trial.node is not None:
        return f", at node {trial.node}"
    return "" if trial.site is None else f", at {trial.site.file}:{trial.site.line}"


def to_json(trial: Trial, *, indent: int | None = 2) -> str:
    """The document: strict JSON, in which NaN and the infinities are strings."""
    return json.to_json(trial, indent=indent)


def schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of the document."""
    return json.schema(SCHEMA_FILE)


def make_schema() -> dict[str, Any]:
    """The schema as the record types imply it."""
    return json.make_schema(Trial, SCHEMA)


def cured_text(verdict: FixVerdict) -> str:
    """Whether what failed is finite with the fix."""
    told = {"forward": verdict.forward_finite, "backward": verdict.backward_finite}
    finite = [phase for phase, is_finite in told.items() if is_finite]
    bad = [phase for phase, is_finite in told.items() if is_finite is False]
    said = [f"{' and '.join(names)} {word}" for names, word in ((finite, "finite"), (bad, "still NaN or Inf")) if names]
    return ", ".join(said)


def kept_text(verdict: FixVerdict) -> str:
    """How many of the healthy elements are worse with the fix."""
    total, worse = verdict.healthy_elements, verdict.healthy_worse
    if total is None or worse is None:
        return ""
    if worse == 0:
        # how far they moved towards it says nothing
        return f"none of {count_text(total, 'healthy element')} further from the truth"
    share = percent_text(worse, total)
    return f"{worse:,} of {count_text(total, 'healthy element')} ({share}) further from the truth{_by(verdict)}"


def _by(verdict: FixVerdict) -> str:
    """By how much elements differ from those of the original at most."""
    most = [
        f"{format_value(value)} {word}"
        for value, word in ((verdict.max_ulp, "ulp"), (verdict.max_rel, "relative"))
        if value is not None
    ]
    return f"; at most {', '.join(most)} from what they were" if most else ""
