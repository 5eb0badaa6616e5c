"""What is said once, below the findings: the verdict, what was left out, and what else the reader should know."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.report.history import history_lines
from whynan.report.values import count_text

if TYPE_CHECKING:
    from whynan.records import Finding, Report
    from whynan.report.layout import Page

_EXCEPTION_LENGTH: Final = 300
_NOTES_SHOWN: Final = 40
_STYLES: Final = {"clean": "bold green", "damaged": "bold yellow", "inconclusive": "bold yellow"}


def closing(page: Page, report: Report, *, show_all: bool) -> None:
    """The verdict and what else there is to say."""
    verdict = (report.verdict, _STYLES.get(report.verdict, "bold red"))
    noun = "operation" if report.run.inference is None else "node"
    events = f" ({count_text(report.coverage.events, noun)} looked at)" if report.coverage.events else ""
    if report.verdict == "clean" and not report.coverage.events and not _is_watched(report):
        # nothing can be said of what nobody looked at
        page.line(_summary(report))
    else:
        page.line(verdict, f": {_summary(report)}{events}")
    for text in (
        *_left_out(report, show_all=show_all),
        *history_lines(report.run.history),
        *_inference(report),
        *_second_run(report),
        *_capsule(report),
        *_notes(report),
    ):
        page.line(text)


def _summary(report: Report) -> str:
    errors = sum(finding.severity == "error" for finding in report.findings)
    warnings = len(report.findings) + len(report.damaging) - errors
    counts = [count_text(n, noun) for n, noun in ((errors, "error"), (warnings, "warning")) if n]
    told = [", ".join(counts)] if counts else []
    if report.verdict == "clean":
        told = ["no bad number reached a loss, a gradient, a parameter or an output"]
        if report.run.inference is not None:
            made = "that the run made " if _is_given(report) else ""
            told = [f"no bad number {made}reached an output"]
        if not report.coverage.events:
            told = ["no step went bad" if _is_watched(report) else "nothing was looked at"]
    elif report.coverage.notes_of("no_others"):
        told = ["nothing was looked at"]
    elif report.coverage.notes_of("no_facts"):
        told = ["what became of its numbers was not written down"]
    elif _is_unseen(report):
        told.append("whynan itself failed, so whether a bad number was born is not known")
    elif report.verdict == "inconclusive":
        if report.run.inference is None:
            place = "a loss, a gradient, a parameter or an output"
            told.append(f"a bad number reached {place}, but where it was born was not seen")
        elif report.run.exception is None:
            told.append("a bad number reached an output, but where it was born was not seen")
    return "; ".join(told) or "nothing was found"


def _is_watched(report: Report) -> bool:
    """Whether steps were looked at, and none of the operations in them."""
    return any(note.values["steps"] for note in report.coverage.notes_of("watched"))


def _is_unseen(report: Report) -> bool:
    """Whether nothing is said of a run because whynan failed: no bad number is known to have reached anything."""
    failed = bool(report.coverage.notes_of("whynan_failed")) and report.run.exit_status.whynan == 0
    return report.verdict == "inconclusive" and failed


def _is_given(report: Report) -> bool:
    """Whether what is bad in the outputs came in, or stands in the model."""
    return bool(report.coverage.notes_of("given"))


def _left_out(report: Report, *, show_all: bool) -> list[str]:
    told: list[str] = []
    if report.run.exit_status.script is None and not _is_unfinished(report):
        told.append("the program was stopped here; --on-nonfinite continue lets it go on")
    if report.run.exception:
        raised = "the program raised " if report.run.inference is None else ""
        told.append(f"{raised}{_abridged(report.run.exception)}")
    hidden = 0 if show_all and report.absorbed else report.absorbed_count
    if hidden:
        where = "; --all or show(show_all=True) tells of them" if report.absorbed else ""
        told.append(f"{count_text(hidden, 'place')} made bad numbers that did no harm{where}")
    if report.coverage.skipped_steps:
        meant = ", as it should" if report.verdict == "clean" else ""
        told.append(f"{count_text(report.coverage.skipped_steps, 'step')} skipped by the loss scaler{meant}")
    return told


def _is_unfinished(report: Report) -> bool:
    """Whether nobody knows how the run ended: its trace was read before it was whole."""
    return bool(report.coverage.notes_of("unfinished"))


def _abridged(exception: str) -> str:
    """The first line of an exception's text: the rest can be a whole tensor, and the traceback has it."""
    first, _, rest = exception.partition("\n")
    return f"{first[:_EXCEPTION_LENGTH]}..." if rest or len(first) > _EXCEPTION_LENGTH else first


def _inference(report: Report) -> list[str]:
    """How a model was run, and whether looking at it changed it."""
    ran = report.run.inference
    if ran is None or _is_replay(report):
        return []
    told: list[str] = []
    if ran.engine == "reference":
        told.append("run by the reference evaluator of onnx, node by node as written")
    else:
        graph = "the graph as it is written" if ran.graph == "original" else f"the optimized graph (level {ran.level})"
        of = ""
        if ran.graph == "optimized" and ran.nodes:
            of = f", {count_text(ran.nodes, 'node')} of {ran.nodes_as_written:,}"
        told.append(f"ran {graph}{of}{_equal(ran.bit_equal)}")
    if len(ran.placement) > 1:
        placed = ", ".join(f"{count_text(count, 'node')} on {name}" for name, count in ran.placement.items())
        told.append(f"executed: {placed}")
    if ran.case is not None:
        told.append(f"the worst of {ran.cases:,} cases is number {ran.case + 1:,}")
    return told


def _equal(bit_equal: bool | None) -> str:
    if bit_equal is None:
        return "; its outputs could not be compared with those of a run that nobody looks at"
    if bit_equal:
        return "; its outputs are bit for bit those of a run that nobody looks at"
    return "; its outputs are NOT those of a run that nobody looks at"


def _second_run(report: Report) -> list[str]:
    replay = report.run.replay
    if replay.kind == "none":
        return []
    word = {True: "faithful", False: "not faithful, so nothing of it is used", None: "not compared"}[replay.faithful]
    name = "second run" if replay.kind == "rerun" else f"replay of the {replay.kind}"
    return [f"{name}: {word}{f' ({replay.why})' if replay.why else ''}"]


def _capsule(report: Report) -> list[str]:
    """Where the failing operation is packed; or, where nothing better can be said of it, how it can be."""
    if _is_replay(report):
        return []
    if report.run.data is not None:
        return [f"the failing operation is packed in {report.run.data}; whynan replay {report.run.data} runs it again"]
    if any(f.severity == "error" and (f.rule == "WN000" or _is_unproved(f)) for f in report.findings):
        return ["--capsule DIR packs the failing operation, for whynan replay"]
    return []


def _is_replay(report: Report) -> bool:
    """Whether one operation was run, and no program or model."""
    return report.run.command.startswith("replay ")


def _is_unproved(finding: Finding) -> bool:
    """Whether there are fixes, and nothing is known of any."""
    return bool(finding.fixes) and all(fix.verdict.status == "unverified" for fix in finding.fixes)


def _notes(report: Report) -> list[str]:
    notes = [f"note: {note}" for note in report.coverage.notes]
    for allow in report.unused_allows:
        written = allow if allow.startswith("#") else f'allow("{allow}")'
        notes.append(f"note: {written} excused nothing, and can go")
    if len(notes) <= _NOTES_SHOWN:
        return notes
    return [*notes[:_NOTES_SHOWN], f"and {len(notes) - _NOTES_SHOWN:,} more notes; the JSON report has them all"]
