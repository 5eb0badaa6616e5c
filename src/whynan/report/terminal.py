"""The terminal report: what, where, why, from where, reaches, fix; the verdict below the findings."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TextIO

from whynan.records import Finding, Report
from whynan.report import divergence, wording
from whynan.report.excerpt import LineOf, Sources, excerpt, history_lines
from whynan.report.fixes.proposals import add_fixes
from whynan.report.page import WIDEST, Page
from whynan.report.wording import count_text
from whynan.rules.wording import data_text

# -- What is said once, below the findings: the verdict, what was left out, and what else the reader should know -------


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
        *divergence.closing_lines(report),
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
    if report.coverage.aligned is not None:
        return divergence.summary(report)
    counts = [count_text(n, noun) for n, noun in ((errors, "error"), (warnings, "warning")) if n]
    told = [", ".join(counts)] if counts else []
    if report.verdict == "clean":
        told = [_clean(report)]
    elif report.coverage.notes_of("no_others"):
        told = ["nothing was looked at"]
    elif report.coverage.notes_of("no_facts"):
        told = ["what became of its numbers was not written down"]
    elif _is_unseen(report):
        told.append("whynan itself failed, so whether a bad number was born is not known")
    elif missing := _missing(report):
        told.append(
            f"{_clean(report)} on the ranks that left a report; what {wording.ranks_text(missing)} met is not known"
        )
    elif report.verdict == "inconclusive":
        if report.run.inference is None:
            place = "a loss, a gradient, a parameter or an output"
            told.append(f"a bad number reached {place}, but where it was born was not seen")
        elif report.run.exception is None:
            told.append("a bad number reached an output, but where it was born was not seen")
    return "; ".join(told) or "nothing was found"


def _clean(report: Report) -> str:
    """That nothing bad was seen, where something was looked at."""
    if not report.coverage.events:
        return "no step went bad" if _is_watched(report) else "nothing was looked at"
    if report.run.inference is None:
        return "no bad number reached a loss, a gradient, a parameter or an output"
    return f"no bad number {'that the run made ' if _is_given(report) else ''}reached an output"


def _missing(report: Report) -> list[int]:
    """The ranks without a report, where nothing else is open: all the others are clean."""
    missing = [rank.rank for rank in report.run.ranks if rank.verdict is None]
    is_clean = all(rank.verdict in (None, "clean") for rank in report.run.ranks)
    return missing if report.verdict == "inconclusive" and is_clean else []


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
    return any(report.coverage.notes_of(kind) for kind in ("unfinished", "rank_without_end", "provisional"))


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
    if _is_replay(report) or report.coverage.aligned is not None:
        return []
    if report.run.data is not None:
        return [f"the failing operation is packed in {report.run.data}; whynan replay {report.run.data} runs it again"]
    if any(f.severity == "error" and (f.rule == "WN000" or _is_unproved(f)) for f in report.findings):
        return ["--capsule DIR packs the failing operation, for whynan replay"]
    return []


def _is_replay(report: Report) -> bool:
    """Whether one operation was run, and no program or model."""
    return any(note.kind in ("same_bits", "other_bits") for note in report.coverage.typed_notes)


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


# -- The terminal report: what, where, why, from where, reaches, fix; about twenty lines a finding ---------------------


_SEVERITY: Final = {"error": "bold red", "warning": "bold yellow", "info": "bold"}


def show(
    report: Report,
    *,
    show_all: bool = False,
    to: TextIO | None = None,
    written: str | None = None,
    already: Shown | None = None,
) -> None:
    """Print a report to standard output, as wide as the terminal and in its encoding, in colour on a terminal.

    `to`: another stream to print to. `written`: the file that has the report's document. `already`: as of ``render``.
    """

    def told(width: int | None, color: bool, encoding: str) -> str:
        return render(
            report, width=width, show_all=show_all, color=color, encoding=encoding, written=written, already=already
        )

    print_page(told, to)


def show_opening(report: Report, to: TextIO | None = None) -> None:
    """Print the first part of a report: its first finding, but for the fixes."""
    print_page(lambda width, color, encoding: opening(report, width=width, color=color, encoding=encoding), to)


def print_page(told: Callable[[int | None, bool, str], str], to: TextIO | None = None) -> None:
    """Print what `told` makes of the width of an output, whether it is in colour, and its encoding."""
    out: TextIO | None = to or sys.stdout
    if out is None or out.closed:  # pyright: ignore[reportUnnecessaryComparison] (so it is without a console)
        return
    encoding = out.encoding or "utf-8"  # pyright: ignore[reportUnnecessaryComparison] (io.StringIO has none)
    _write(out, told(_width(out), _in_color(out), encoding) + "\n")


def render(
    report: Report,
    *,
    width: int | None = None,
    show_all: bool = False,
    source: LineOf | None = None,
    color: bool = False,
    encoding: str = "utf-8",
    written: str | None = None,
    already: Shown | None = None,
) -> str:
    """The report as text of lines at most `width` cells wide.

    Args:
        report: what is to be told.
        width: 32 at least; the terminal's, and 120 at most, where none is given.
        show_all: tell of the bad numbers that did no harm too, and of the fixes that were rejected.
        source: gives a line of a file; by default from the file, if it still is what it was in the run.
        color: with the terminal's colour codes.
        encoding: of the output; what it cannot write is put plainer.
        written: the file that has the report's document, from which a fix is applied.
        already: what stands above already; what follows it is given.
    """
    page = Page(width, encoding)
    line_of = source or Sources(report.run.sources).line
    told = [*report.findings, *report.damaging, *(report.absorbed if show_all else ())]
    known = None if already is None else already.find(told)
    told.sort(key=lambda finding: finding is not known)
    if already is not None and known is None:
        page.blank()
    for number, finding in enumerate(told, 1):
        if already is not None and finding is known:
            already.add_rest(page, finding, report, show_all=show_all, written=written)
            continue
        right = _versions(report) if number == 1 else f"{number} of {len(told)}"
        if finding.divergence is not None:
            divergence.add_divergence(page, finding, finding.divergence, right, line_of)
            page.blank()
            continue
        like = wording.told_before(finding, told[: number - 1])
        _finding(
            page, finding, report, right, line_of, None if like is None else (told[like], f"{like + 1} of {len(told)}")
        )
        _add_attributions(page, finding)
        add_fixes(page, finding, told[: number - 1], report, show_all=show_all, written=written)
        page.blank()
    closing(page, report, show_all=show_all)
    return page.finish(color=color)


@dataclass(frozen=True, slots=True)
class Shown:
    """The first part of a report, which has been shown: a finding as it was then, perhaps with its fixes."""

    finding: Finding
    fixes: bool = False

    def find(self, told: Iterable[Finding]) -> Finding | None:
        """The same finding, as it is now."""
        return next((finding for finding in told if _birth(finding) == _birth(self.finding)), None)

    def add_rest(self, page: Page, finding: Finding, report: Report, *, show_all: bool, written: str | None) -> None:
        """What is to be said of the finding that has not been said."""
        if self.fixes:
            return
        if made := wording.maker_text(finding, self.finding):
            page.row("made", made)
        if finding.also != self.finding.also and (others := wording.also_text(finding)):
            # a fix may show that another birth has the same cause
            page.row("also", others)
        _add_attributions(page, finding)
        add_fixes(page, finding, (), report, show_all=show_all, written=written)
        page.blank()


def _add_attributions(page: Page, finding: Finding) -> None:
    for number, attribution in enumerate(finding.attributions):
        page.row("" if number else "because", wording.attribution_text(attribution))


def show_fixes(report: Report, shown: Finding, *, show_all: bool, to: TextIO, written: str | None) -> bool:
    """Print the fixes of a finding that has been shown, if the report has it; gives whether it has."""
    known = Shown(shown).find((*report.findings, *report.damaging))
    if known is None:
        return False

    def told(width: int | None, color: bool, encoding: str) -> str:
        page = Page(width, encoding)
        Shown(shown).add_rest(page, known, report, show_all=show_all, written=written)
        return page.finish(color=color)

    print_page(told, to)
    return True


def opening(
    report: Report,
    *,
    width: int | None = None,
    source: LineOf | None = None,
    color: bool = False,
    encoding: str = "utf-8",
) -> str:
    """The first part of a report, before its fixes are proved: the first finding; ``render`` gives what follows."""
    page = Page(width, encoding)
    first = next(iter((*report.findings, *report.damaging)))
    _finding(page, first, report, _versions(report), source or Sources(report.run.sources).line, None)
    return page.finish(color=color)


def progress_line(what: str, out: TextIO) -> str:
    """The line of a terminal in which a report goes on while fixes are proved, without its end."""
    page = Page(_width(out), out.encoding or "utf-8")  # pyright: ignore[reportUnnecessaryComparison] (as above)
    page.row("fix", (what, "dim"))
    return page.finish(color=_in_color(out)).split("\n")[0]


def _birth(finding: Finding) -> tuple[object, ...]:
    """What is the same of a finding before and after its fixes are proved."""
    element = finding.element
    return finding.rule, finding.site, finding.node, finding.phase, finding.op, element.output, element.index


def _width(out: TextIO) -> int | None:
    """The width of the terminal that an output is; None where it is none, or a variable says another."""
    if os.environ.get("COLUMNS", "").isdecimal() or not out.isatty():
        return None
    try:
        return min(os.get_terminal_size(out.fileno()).columns, WIDEST) or None
    except OSError:
        return None


def _versions(report: Report) -> str:
    versions, inference = report.run.versions, report.run.inference
    engine = "torch" if inference is None else "onnxruntime" if inference.engine == "onnxruntime" else "onnx"
    # the part behind the plus is how it was built, which the device says better
    named = [f"{name} {versions[name].split('+')[0]}" for name in ("whynan", engine) if name in versions]
    return " · ".join([*named, report.run.device])


def _finding(
    page: Page, finding: Finding, report: Report, right: str, line_of: LineOf, like: tuple[Finding, str] | None
) -> None:
    """One finding; of one at the expression of an earlier one (`like`, and which) only what is different."""
    raised = report.run.exception is not None
    bad_at = wording.bad_step(finding, report.run.history)
    page.heading(wording.headline(finding, raised=raised, bad_at=bad_at), right, _SEVERITY[finding.severity])
    page.blank()
    _add_birth(page, finding, line_of, like)
    lost = finding.birth is None and finding.element.value is None
    page.row("element", wording.element(finding.element, entered=finding.birth == "entered", lost=lost))
    if like is None:
        _operands(page, finding, report)
    if finding.data is not None and finding.birth not in ("entered", "literal"):
        page.row("data", data_text(finding.data))
    page.row("why", (f"{finding.rule} {finding.name}", "bold"), f": {finding.message}")
    if finding.explanation and (like is None or finding.explanation != like[0].explanation):
        page.row("", finding.explanation)
    for number, cause in enumerate(wording.causes(finding, None if like is None else like[0])):
        page.row("" if number else "from", cause)
    if then := wording.turn_text(finding):
        page.row("then", then)
    if again := wording.repeats(finding):
        page.row("again", again)
    if others := wording.also_text(finding):
        page.row("also", others)
    page.items("reaches", wording.reach_lines(finding, raised=raised), " · ")
    for number, transfer in enumerate(finding.transfers):
        page.row("" if number else "sent", wording.transfer_text(transfer))
    if wrong := wording.finite_but_wrong(finding):
        page.row("", wrong)


def _add_birth(page: Page, finding: Finding, line_of: LineOf, like: tuple[Finding, str] | None) -> None:
    # of silent damage nothing was born
    page.items("at" if finding.birth is None else "born", wording.birth_place(finding), "  ")
    op = finding.op or ""
    if like is not None:
        page.row("", f"the expression of {like[1]}{f', {op}' if op else ''}")
        if like[0].library_site != finding.library_site:
            _add_library_line(page, finding, line_of)
        return
    lines = () if finding.site is None else excerpt(finding.site, line_of)
    for number, line in enumerate(lines, 1):
        page.code(line, op if number == len(lines) else "")
    if op and finding.site is not None and not lines:
        page.row("", op)
    if finding.site is not None and (node := wording.node(finding)):
        page.row("node", node)
    if finding.made_of:
        page.row("", finding.made_of)
    _add_library_line(page, finding, line_of)


def _add_library_line(page: Page, finding: Finding, line_of: LineOf) -> None:
    if finding.library_site is not None:
        page.items("inside", wording.place(finding.library_site), "  ")
        for line in excerpt(finding.library_site, line_of):
            page.code(line)


def _operands(page: Page, finding: Finding, report: Report) -> None:
    forward, here = wording.operands(finding.forward_operands), wording.operands(finding.element.operands)
    page.items("", forward, "   ")
    if forward and here:
        here[0] = f"in the backward: {here[0]}"
    page.items("", here, "   ")
    if (lost := wording.lost_operands(finding)) and report.run.replay.kind == "none":
        page.row(
            "", f"({', '.join(lost)}: overwritten or freed; explain(..., rerun=True) runs again to read such values)"
        )


def _in_color(out: TextIO) -> bool:
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _write(out: TextIO, text: str) -> None:
    """Write to an output whose reader may have gone; that is no reason to end the program, nor to alter its output."""
    try:
        out.flush()
        descriptor = _own_descriptor(out)
        if descriptor is None:
            out.write(text)
            out.flush()
            return
        # what could not be written must not stay in the buffer of the program's output, where the interpreter would
        # meet it again as it exits
        with os.fdopen(descriptor, "w", encoding=out.encoding, errors="backslashreplace") as copy:
            copy.write(text)
    except BrokenPipeError:
        return


def _own_descriptor(out: TextIO) -> int | None:
    """A second descriptor of an output; None where it has none, or where its encoding would begin anew with a mark."""
    if type(out) is not io.TextIOWrapper or "".encode(out.encoding):
        return None
    try:
        return os.dup(out.fileno())
    except OSError:
        return None
