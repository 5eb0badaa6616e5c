"""From a trace to the report: analysis, rules, fixes; and the pieces of one run merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from whynan.analysis import fold_causes, fold_findings, judge_births
from whynan.analysis.chains import sink_links
from whynan.capture.ranks import rank
from whynan.faults import report_internal_error
from whynan.records import STATUSES, ExitStatus, Note, Replay, Report, Run, Source
from whynan.rules.catalogue import explain as explain_finding
from whynan.run.suppressions import all_comments, comment_at, excuse_finding
from whynan.run.versions import versions
from whynan.source.positions import sha256_of
from whynan.source.syntax import lines_of
from whynan.source.text import Place, place_of
from whynan.traces.format import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from whynan.records import Finding, Fix, Verdict
    from whynan.run.suppressions import Allowance, Baseline, Comment
    from whynan.traces import Trace


# -- One report of what was looked at in several pieces: the start of a run, evaluations in it, the replay of a step


VERDICTS: Final[tuple[Verdict, ...]] = ("nonfinite", "divergent", "hazard", "inconclusive", "damaged", "clean")
"""The first that one of the pieces has is that of them all."""
_SEVERITIES: Final = ("error", "warning", "info")


def merge_reports(first: Report, *others: Report) -> Report:
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
        found[number:] = [
            _one_finding(found[number], finding) if number < len(found) else finding,
            *found[number + 1 :],
        ]
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


def _one_finding(first: Finding, second: Finding) -> Finding:
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
            "also": tuple(dict.fromkeys((*worse.also, *first.also, *second.also))),
            "reaches": tuple(reached.values()),
            "chain": (*way, *also, *sink_links(reached.values())),
            "fixes": min(worse.fixes, first.fixes, second.fixes, key=_proof),
        }
    )


def _proof(fixes: tuple[Fix, ...]) -> int:
    """How well the best of some fixes is proved: the least is the best."""
    return min((STATUSES.index(fix.verdict.status) for fix in fixes), default=len(STATUSES))


# -- One bug, one finding: what leaves a run has the births of one cause together, after their fixes were proved ------


def fold_report(report: Report) -> Report:
    """The report with one finding for each cause; the other births of it stand in its ``also``."""
    try:
        findings, damaging = fold_findings(report.findings, report.damaging, source_reader(report))
        told, absorbed = fold_causes((*findings, *damaging), report.absorbed)
    except Exception:
        report_internal_error()
        return report
    return report.model_copy(
        update={
            "findings": tuple(told[: len(findings)]),
            "damaging": tuple(told[len(findings) :]),
            "absorbed": tuple(absorbed),
            "absorbed_count": report.absorbed_count - len(report.absorbed) + len(absorbed),
        }
    )


def source_reader(report: Report) -> Callable[[str], Place | None]:
    """Gives the files of a report's run that are what they were."""
    hashes = {source.file: source.sha256 for source in report.run.sources}

    def read(file: str) -> Place | None:
        if file not in hashes or sha256_of(file) != hashes[file]:
            return None
        return place_of("".join(lines_of(file)))

    return read


# -- One traced run: from the capture's trace to the report ------------------------------------------------------------


def report_of(trace: Trace, **known: Any) -> Report:
    """The report of a trace as ``build_report`` makes it; after an error of our own, one that says so."""
    try:
        return build_report(trace, **known)
    except Exception:
        report_internal_error()
        coverage = trace.coverage.with_notes(FAILED)
        whole = ExitStatus(script=1 if known["exception"] else 0, whynan=0)
        run = Run(command=known["command"], exit_status=whole, device=known["device"], exception=known["exception"])
        return Report(verdict="inconclusive", run=run, coverage=coverage)


def build_report(
    trace: Trace,
    *,
    command: str,
    flags: dict[str, Any],
    device: str,
    allowances: list[Allowance],
    replay: Replay | None = None,
    exception: str | None = None,
    notes: tuple[Note, ...] = (),
    baseline: Baseline | None = None,
    whole_program: bool = False,
    main: str | None = None,
    comments: Sequence[Comment] | None = None,
    run: Run | None = None,
) -> Report:
    """Judge, explain and excuse every birth of a trace.

    `whole_program`: all of it was seen, so that a comment which excused nothing can go; `main`: its script. `comments`
    and `run`: those of a run that is not this one.
    """
    judged = judge_births(trace)
    scopes = {id(b.element): b.scope for b in (*trace.births, *trace.silent)}
    used: set[Comment] = set()
    # of a run that is not this one, it is not known
    here = rank() if run is None else None

    def finish(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        # excused by the scope of their births: the element is the birth's own
        explained = (explain_finding(f) for f in findings)
        # silent damage is what a rule knows, and nothing else
        known = (f for f in explained if f.damage is None or f.rule != "WN000")
        if here is not None:
            known = (f.model_copy(update={"rank": here.number}) for f in known)
        told = (excuse_finding(f, allowances, scopes.get(id(f.element), ())) for f in known)
        return tuple(_excuse_by_baseline(f, baseline) for f in distinct(_commented(f, used, comments) for f in told))

    escaped, damaging, absorbed = finish(judged.escaped), finish(judged.damaging), finish(judged.absorbed)
    # what is finite and wrong is worth a word where no bad number was an error
    silent = finish(judged.silent) if all(f.severity != "error" for f in escaped) else ()
    damaging = _joined(damaging, silent)
    meant = [f for f in (*escaped, *damaging) if f.allowed is not None]
    escaped = tuple(f for f in escaped if f.allowed is None)
    damaging = tuple(f for f in damaging if f.allowed is None)
    verdict = "damaged" if judged.verdict == "clean" and silent else judged.verdict
    if meant and verdict in ("nonfinite", "damaged"):
        errors = any(f.severity == "error" for f in escaped)
        verdict = "nonfinite" if errors else ("damaged" if escaped or damaging else "clean")
    said = (*trace.coverage.typed_notes, *notes, *(_allowance_note(f) for f in meant))
    return Report(
        verdict=verdict,
        run=run
        or Run(
            command=command,
            exit_status=ExitStatus(script=1 if exception else 0, whynan=_status(verdict, trace)),
            versions=versions(),
            device=device,
            flags=flags,
            replay=replay or Replay(),
            sources=_sources((*escaped, *damaging)),
            exception=exception,
        ),
        findings=escaped,
        damaging=damaging,
        absorbed=absorbed,
        absorbed_count=len(absorbed),
        unused_allows=(
            *(a.pattern for a in allowances if not a.used),
            *(str(c) for c in (all_comments(main) if whole_program else ()) if c not in used),
        ),
        coverage=trace.coverage.model_copy(update={"typed_notes": said}),
        ranges=trace.ranges,
    )


def _joined(damaging: tuple[Finding, ...], silent: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Births that did damage, and silent damage: at one expression they are one, which the latter says better."""
    left = list(damaging)
    told: list[Finding] = []
    for found in silent:
        born = next((f for f in left if f.site is not None and f.site == found.site), None)
        if born is not None:
            left.remove(born)
            found = found.model_copy(
                update={
                    "matched": tuple(dict.fromkeys((*found.matched, born.rule, *born.matched))),
                    "chain": born.chain,
                    "reaches": born.reaches,
                    "allowed": found.allowed or born.allowed,
                }
            )
        told.append(found)
    return (*left, *told)


def _status(verdict: Verdict, trace: Trace) -> int:
    """1 where a bad number reached a fatal sink, be its birth known or not; never for an error of our own."""
    unexplained = verdict == "inconclusive" and not trace.failed
    return 1 if verdict == "nonfinite" or unexplained else 0


def _allowance_note(finding: Finding) -> Note:
    file, line = (None, None) if finding.site is None else (finding.site.file, finding.site.line)
    return Note.create("allowed", code=finding.rule, name=finding.name, file=file, line=line, reason=finding.allowed)


def _commented(finding: Finding, used: set[Comment], comments: Sequence[Comment] | None) -> Finding:
    comment = comment_at(finding, comments)
    if comment is None:
        return finding
    used.add(comment)
    return finding.model_copy(update={"allowed": finding.allowed or comment.reason, "severity": "info"})


def _excuse_by_baseline(finding: Finding, baseline: Baseline | None) -> Finding:
    if baseline is None or finding.allowed is not None or finding.fate == "absorbed" or not baseline.knows(finding):
        return finding
    return finding.model_copy(update={"allowed": f"known from {baseline.path}", "severity": "info"})


def _sources(findings: Iterable[Finding]) -> tuple[Source, ...]:
    files: dict[str, str] = {}
    for finding in findings:
        for site in (finding.site, finding.library_site):
            if site is not None and site.file not in files:
                digest = sha256_of(site.file)
                if digest is not None:
                    files[site.file] = digest
    return tuple(Source(file=f, sha256=d) for f, d in files.items())


def with_note(report: Report, note: Note) -> Report:
    """A report with one more note: before the hint, which comes last."""
    notes = list(report.coverage.typed_notes)
    at = next((i for i, known in enumerate(notes) if known.kind == "start_step_advice"), len(notes))
    notes.insert(at, note)
    return report.model_copy(update={"coverage": report.coverage.model_copy(update={"typed_notes": tuple(notes)})})
