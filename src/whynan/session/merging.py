"""One report of what was looked at in several pieces: the start of a run, evaluations in it, the replay of a step."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.analysis.chains import sink_links

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.records import Finding, Fix, Report, Verdict

VERDICTS: Final[tuple[Verdict, ...]] = ("nonfinite", "divergent", "hazard", "inconclusive", "damaged", "clean")
"""The first that one of the pieces has is that of them all."""
STATUSES: Final = ("verified", "distorting", "unverified", "rejected")
"""What a proof of a fix has found, the best first."""
_SEVERITIES: Final = ("error", "warning", "info")


def merged(first: Report, *others: Report) -> Report:
    """The first report, with what the others found beside it; of the run it says what the first one knows."""
    if not others:
        return first
    pieces = (first, *others)
    findings = distinct(f for piece in pieces for f in piece.findings)
    damaging = distinct((f for piece in pieces for f in piece.damaging), findings)
    absorbed = distinct((f for piece in pieces for f in piece.absorbed), (*findings, *damaging))
    status = first.run.exit_status.model_copy(update={"whynan": max(p.run.exit_status.whynan for p in pieces)})
    sources = {source.file: source for piece in pieces for source in piece.run.sources}
    coverage = first.coverage.model_copy(
        update={
            "events": sum(p.coverage.events for p in pieces),
            "eager": sum(p.coverage.eager for p in pieces),
            "compiled_regions": sum(p.coverage.compiled_regions for p in pieces),
            "skipped_steps": max(p.coverage.skipped_steps for p in pieces),
            "typed_notes": tuple(dict.fromkeys(note for p in pieces for note in p.coverage.typed_notes)),
        }
    )
    return first.model_copy(
        update={
            "verdict": min((p.verdict for p in pieces), key=VERDICTS.index),
            "findings": tuple(sorted(findings, key=lambda f: f.severity != "error")),
            "damaging": damaging,
            "absorbed": absorbed,
            "absorbed_count": len(absorbed),
            "coverage": coverage,
            "run": first.run.model_copy(update={"exit_status": status, "sources": tuple(sources.values())}),
        }
    )


def distinct(findings: Iterable[Finding], told: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """Each finding once: a birth that several pieces have seen, and what one rule says of one place.

    `told`: findings of another fate; what is among them is left out.
    """
    elsewhere = {key for finding in told for key in _keys(finding)}
    known: dict[object, int] = {}
    found: list[Finding] = []
    for finding in findings:
        keys = _keys(finding)
        if not elsewhere.isdisjoint(keys):
            continue
        number = next((known[key] for key in keys if key in known), len(found))
        found[number:] = [_joined(found[number], finding) if number < len(found) else finding, *found[number + 1 :]]
        known |= dict.fromkeys(keys, number)
    return tuple(found)


def _keys(finding: Finding) -> list[object]:
    """What two findings of one birth have in common, and two of one cause."""
    site = finding.site
    # what no operation has borne is told apart by where it came from
    source = finding.message if finding.birth in ("entered", "literal") else None
    place = site, finding.library_site, finding.node if site is None else None, source, finding.allowed
    born = finding.phase, finding.op, finding.grad_fn, finding.birth, finding.damage and finding.rule
    explained = site is not None and site.column is not None and finding.rule != "WN000"
    return [(*place, *born), *([(*place, finding.rule)] if explained else [])]


def _joined(first: Finding, second: Finding) -> Finding:
    """Two findings of one birth as the worse one, with the better fixes of both."""
    worse = min(first, second, key=lambda f: _SEVERITIES.index(f.severity))
    again = None not in (first.step, second.step) and first.step != second.step
    counts = first.occurrences, second.occurrences
    reached = {(r.kind, r.name): r for f in (worse, first, second) for r in f.reaches}
    reached |= {(r.kind, r.name): r for r in worse.reaches}
    way = [link for link in worse.chain if link.role != "sink"]
    births = [link for f in (first, second) for link in f.chain if link.role == "birth" and link not in way]
    also = dict.fromkeys(link.model_copy(update={"role": "step"}) for link in births)
    return worse.model_copy(
        update={
            "occurrences": sum(counts) if again else max(counts),
            "modules": tuple(dict.fromkeys((*first.modules, *second.modules))),
            "reaches": tuple(reached.values()),
            "chain": (*way, *also, *sink_links(reached.values())),
            "fixes": min(worse.fixes, first.fixes, second.fixes, key=_proof),
        }
    )


def _proof(fixes: tuple[Fix, ...]) -> int:
    """How well the best of some fixes is proved: the least is the best."""
    return min((STATUSES.index(fix.verdict.status) for fix in fixes), default=len(STATUSES))
