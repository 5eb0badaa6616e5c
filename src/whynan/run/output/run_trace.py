"""A run and its trace on disk: what the run knows beside the facts is written too, and gives the same report again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Protocol

from whynan.capture.ranks import launched
from whynan.records import ExitStatus, Note, Run, Source
from whynan.report.redaction import public_patterns
from whynan.rules.catalogue import distribution, rules
from whynan.run.pipeline import build_report
from whynan.run.suppressions import Allowance, Baseline, Comment, comments_of
from whynan.run.versions import versions
from whynan.source.positions import sha256_of
from whynan.traces import format as layout
from whynan.traces.format import FAILED, CommentPart, KnownPart, Meant, SessionPart
from whynan.traces.reader import Folder, read_trace
from whynan.traces.redaction import FACTS, Redaction

if TYPE_CHECKING:
    from whynan.config import Options
    from whynan.records import Report
    from whynan.run.guarded_capture import GuardedCapture
    from whynan.traces import Trace
    from whynan.traces.reader import Recorded
    from whynan.traces.writer import TraceWriter

OPTIONS: Final = ("memory", "ranges", "on_nonfinite", "start_step", "steps", "strict")
"""Those that say what a trace can hold; none of them names a file or anything of the program's."""
RANK: Final = "rank"
RANKS: Final = "ranks"
"""Beside the options: which rank of how many the trace is of, where a launcher has started the run."""
_LARGEST_SOURCE: Final = 64 << 20


class Recorder(Protocol):
    """The region whose trace is written."""

    command: str
    options: Options
    watching: GuardedCapture
    trace: Trace
    allowed: list[Allowance]
    baseline: Baseline | None
    notes: list[Note]

    @property
    def report(self) -> Report: ...


def begin(writer: TraceWriter, region: Recorder) -> None:
    """The run begins: of what run the trace is, and what is meant as the run goes on."""
    try:
        _begin(writer, region)
    except Exception:
        region.watching.fail()


def end(writer: TraceWriter, region: Recorder) -> Report:
    """The run has ended; gives its report, which says so where the trace had to stop."""
    coverage = region.report.coverage
    try:
        _end(writer, region)
    except Exception:
        if FAILED not in coverage.typed_notes:
            region.watching.fail()
            coverage = coverage.with_notes(FAILED)
    return region.report.model_copy(update={"coverage": writer.with_notes(coverage)})


def _begin(writer: TraceWriter, region: Recorder) -> None:
    writer.meant = lambda: tuple(
        _allowance_part(allowance, private=writer.names is not None) for allowance in region.allowed
    )
    capture = region.watching.capture
    run = Run(
        command=region.command,
        exit_status=ExitStatus(script=None, whynan=0),
        versions=versions(),
        device="cpu" if capture is None else capture.device(),
        flags={} if capture is None else capture.flags(),
    )
    options: dict[str, bool | int | float | str | None] = {name: getattr(region.options, name) for name in OPTIONS}
    if (rank := launched(os.environ)) is not None:
        options |= {RANK: rank.number, RANKS: rank.world}
    writer.begin(redact_run(writer, run), options)


def _end(writer: TraceWriter, region: Recorder) -> None:
    trace, report = region.trace, region.report
    if trace is not writer.last:
        trace.coverage = writer.with_notes(trace.coverage)
        writer.facts(trace, {source.file: source.sha256 for source in report.run.sources}, len(trace.ranges))
    update_trace(writer, report, _session(writer, region))


def _session(writer: TraceWriter, region: Recorder) -> SessionPart:
    unused = region.report.unused_allows
    if writer.names is None:
        session = SessionPart(typed_notes=tuple(region.notes), unused_allows=unused)
        return session.model_copy(update={"comments": _comments(region.trace), **_baseline_parts(region.baseline)})
    redaction = Redaction(FACTS, writer.names)
    notes = tuple(redaction.redact(note) for note in region.notes)
    return SessionPart(typed_notes=notes, unused_allows=public_patterns(unused))


def replay_writer(writer: TraceWriter | None) -> TraceWriter | None:
    """What writes the next replay of a run into the folder of its trace."""
    if writer is None:
        return None
    writer.replays += 1
    return writer.inner(layout.REPLAY.format(writer.replays))


def update_trace(
    writer: TraceWriter, report: Report, session: SessionPart | None = None, *, whole: bool = False
) -> None:
    """More is known of how the run has ended: its exit status; or, with `whole`, more than this trace tells."""
    writer.end(redact_run(writer, report.run), session)
    if whole or writer.names is not None:
        from whynan.report.json import to_json
        from whynan.report.redaction import redacted

        told = report if writer.names is None else redacted(report, writer.names)
        writer.report(to_json(told, indent=None))


def report_of_directory(directory: str | os.PathLike[str]) -> Report:
    """The report of a trace on disk; raises ``UsageError`` where it is none."""
    recorded = read_trace(directory)
    data = Folder(directory).read(layout.REPORT, layout.MOST_DOCUMENT_BYTES) if recorded.ended is not None else None
    if data is None:
        return _report_of_replay(directory) or report_of_recorded(recorded)
    from whynan.report.json import parse_report

    report = parse_report(data)
    run = report.run.model_copy(update={"exit_status": recorded.run.exit_status})
    return report.model_copy(update={"run": run})


def _report_of_replay(directory: str | os.PathLike[str]) -> Report | None:
    """The report of the last replay of a run that did not come to tell of it; None where it made none."""
    replay = Folder(directory).last(layout.REPLAY)
    if replay is None:
        return None
    report = report_of_directory(replay)
    return report.model_copy(update={"coverage": report.coverage.with_notes(Note.create("ended_in_a_replay"))})


def report_of_recorded(recorded: Recorded) -> Report:
    """The report of a trace that was read, made as that of its run was."""
    run, session = recorded.run, recorded.session
    finished = recorded.ended is not None
    known = frozenset((k.rule, k.phase, k.op, k.place) for k in session.known)
    report = build_report(
        recorded.trace,
        command=run.command,
        flags=run.flags,
        device=run.device,
        allowances=[Allowance(meant.pattern, meant.reason) for meant in recorded.allowances],
        notes=session.typed_notes,
        baseline=None if session.baseline is None else Baseline(session.baseline, known),
        comments=_recorded_comments(recorded) if finished else _unchanged_comments(recorded),
        run=run,
    )
    if finished:
        return report.model_copy(update={"unused_allows": session.unused_allows})
    # what excused nothing so far might have done so later
    return report.model_copy(update={"unused_allows": (), "run": _cut_short(recorded, report)})


def _cut_short(recorded: Recorded, report: Report) -> Run:
    """A run of which nobody knows how it ended."""
    status = ExitStatus(script=None, whynan=1 if report.verdict == "nonfinite" else 0)
    sites = (site for f in (*report.findings, *report.damaging) for site in (f.site, f.library_site))
    files = dict.fromkeys(site.file for site in sites if site is not None)
    sources = tuple(Source(file=f, sha256=recorded.sources[f]) for f in files if f in recorded.sources)
    return recorded.run.model_copy(update={"exit_status": status, "sources": sources})


def redact_run(writer: TraceWriter, run: Run) -> Run:
    """What of a run may stand in its trace."""
    if writer.names is None:
        return run
    from whynan.report.redaction import REPORT

    return Redaction(REPORT, writer.names).redact(run)


def _allowance_part(allowance: Allowance, *, private: bool) -> Meant:
    if not private:
        return Meant(pattern=allowance.pattern, reason=allowance.reason)
    public = any(allowance.fits(rule.code, rule.name) for rule in rules() if distribution(rule.code) is None)
    return Meant(pattern=allowance.pattern if public else "left out", reason="left out")


def _baseline_parts(baseline: Baseline | None) -> dict[str, Any]:
    if baseline is None:
        return {}
    known = sorted(baseline.known, key=str)
    return {
        "baseline": baseline.path,
        "known": tuple(KnownPart(rule=r, phase=phase, op=op, place=place) for r, phase, op, place in known),
    }


def _comments(trace: Trace) -> tuple[CommentPart, ...]:
    """The comments that say what is meant, of every file that something was born in."""
    names = ("file", "line", "last", "patterns", "reason")
    files = dict.fromkeys(birth.event.site.file for birth in trace.births if birth.event.site is not None)
    found = (comment for file in files if not file.startswith("<") for comment in comments_of(file))
    return tuple(CommentPart(**{name: getattr(comment, name) for name in names}) for comment in found)


def _recorded_comments(recorded: Recorded) -> list[Comment]:
    return [Comment(c.file, c.line, c.last, c.patterns, c.reason) for c in recorded.session.comments]


def _unchanged_comments(recorded: Recorded) -> list[Comment]:
    """The comments of those source files that still are what they were in a run that could not record them."""
    return [c for file, digest in recorded.sources.items() if _is_still(file, digest) for c in comments_of(file)]


def _is_still(file: str, digest: str) -> bool:
    try:
        return os.path.getsize(file) <= _LARGEST_SOURCE and sha256_of(file) == digest
    except (OSError, ValueError):
        return False
