"""One report of what was looked at in several pieces: the start of a run, evaluations in it, the replay of a step."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.records import Finding, Report, Verdict

VERDICTS: Final[tuple[Verdict, ...]] = ("nonfinite", "divergent", "hazard", "inconclusive", "damaged", "clean")
"""The first that one of the pieces has is that of them all."""


def merged(first: Report, *others: Report) -> Report:
    """The first report, with what the others found beside it; of the run it says what the first one knows."""
    if not others:
        return first
    pieces = (first, *others)
    findings = _distinct(f for piece in pieces for f in piece.findings)
    absorbed = _distinct(f for piece in pieces for f in piece.absorbed)
    status = first.run.exit_status.model_copy(update={"whynan": max(p.run.exit_status.whynan for p in pieces)})
    sources = {source.file: source for piece in pieces for source in piece.run.sources}
    coverage = first.coverage.model_copy(
        update={
            "events": sum(p.coverage.events for p in pieces),
            "eager": sum(p.coverage.eager for p in pieces),
            "compiled_regions": sum(p.coverage.compiled_regions for p in pieces),
            "skipped_steps": max(p.coverage.skipped_steps for p in pieces),
            "notes": tuple(dict.fromkeys(note for p in pieces for note in p.coverage.notes)),
        }
    )
    return first.model_copy(
        update={
            "verdict": min((p.verdict for p in pieces), key=VERDICTS.index),
            "findings": tuple(sorted(findings, key=lambda f: f.severity != "error")),
            "damaging": _distinct(f for piece in pieces for f in piece.damaging),
            "absorbed": absorbed,
            "absorbed_count": len(absorbed),
            "coverage": coverage,
            "run": first.run.model_copy(update={"exit_status": status, "sources": tuple(sources.values())}),
        }
    )


def _distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each finding once: what was born at one place in several pieces is one, with all its occurrences."""
    known: dict[object, Finding] = {}
    for finding in findings:
        key = finding.rule, finding.phase, finding.op, finding.birth, finding.severity, finding.site
        before = known.get(key)
        if before is not None:
            finding = before.model_copy(update={"occurrences": before.occurrences + finding.occurrences})
        known[key] = finding
    return tuple(known.values())
