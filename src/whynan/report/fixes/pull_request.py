"""A pull request with a proved fix, in Markdown: the bug, the mechanism, the change, the proof, how to reproduce it."""

from __future__ import annotations

from typing import Final

from whynan.floats.text import format_value
from whynan.records import Finding, FixVerdict, Report
from whynan.report import wording
from whynan.report.escape import code_block, code_span, markdown, plain
from whynan.report.fixes.proposals import Offer
from whynan.report.fixes.trial import cured_text, kept_text

_MEANING: Final = {
    "verified": "cured, what was healthy is kept, nothing is invented, and the failing run is finite to its end",
    "guarded": "as verified, but where the run failed there is no exact value, or none is known, and a number is given",
}
_ARGUMENTS: Final = "A report does not hold the arguments of a program: add those of your run."


def pull_request(report: Report, offer: Offer) -> str:
    """The title of a pull request on the first line, and behind an empty one its body."""
    finding, fix = offer.finding, offer.fix
    raised = report.run.exception is not None
    headline = wording.headline(finding, raised=raised).removeprefix("warning: ")
    sections = {
        "The bug": _bug(finding, headline, raised=raised),
        "The mechanism": [
            _sentence(f"{finding.rule} {finding.name}: {finding.message}"),
            markdown(finding.explanation),
        ],
        "The change": [markdown(fix.title), code_block(fix.patch or "", "diff")],
        "The proof": [_proof(fix.verdict)],
        "How to reproduce it": _reproduction(report),
    }
    body = "\n\n".join(f"## {title}\n\n" + "\n\n".join(filter(None, parts)) for title, parts in sections.items())
    return f"{plain(_title(finding, headline))}\n\n{body}"


def _title(finding: Finding, headline: str) -> str:
    place = "" if finding.site is None else f" at {finding.site.file}:{finding.site.line}"
    return f"Fix {finding.name}{place}: {headline}"


def _bug(finding: Finding, headline: str, *, raised: bool) -> list[str]:
    """What is bad, the expression that bore it, the element and its operands, and what it reached."""
    where: list[str] = []
    if finding.site is not None:
        place, *inside = wording.place(finding.site)
        where = [f"At {', '.join((code_span(place), *map(markdown, inside)))}:"]
    code = [] if finding.site is None or not finding.site.code else [code_block(finding.site.code, "python")]
    lost = finding.birth is None and finding.element.value is None
    element = wording.element(finding.element, entered=finding.birth == "entered", lost=lost)
    values = [*wording.operands(finding.forward_operands), *wording.operands(finding.element.operands)]
    facts = [
        f"- element: {markdown(element)}",
        *(f"- {code_span(value)}" for value in dict.fromkeys(values)),
        *(f"- reaches {markdown(reached)}" for reached in wording.reach_lines(finding, raised=raised)),
    ]
    return [_sentence(headline), *where, *code, "\n".join(facts)]


def _proof(verdict: FixVerdict) -> str:
    """The verdict with its numbers."""
    told = [f"**{verdict.status}**: {_MEANING[verdict.status]}"]
    told += [f"cured: {text}" for text in (cured_text(verdict),) if text]
    told += [f"kept: {text}" for text in (kept_text(verdict),) if text]
    for value, unit in ((verdict.max_ulp, "ulp"), (verdict.max_rel, "relative")):
        if value is not None:
            told.append(f"largest difference from the original: {format_value(value)} {unit}")
    if verdict.undecided:
        told.append(f"undecided: {wording.count_text(verdict.undecided, 'element')}")
    told += [f"given: {markdown(wording.stand_in_text(given))}" for given in verdict.stand_ins]
    if verdict.why:
        told.append(markdown(verdict.why))
    return "\n".join(f"- {line}" for line in told)


def _reproduction(report: Report) -> list[str]:
    """The commands, where the run was one; what it was run with."""
    command, run = report.run.command, report.run
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    used = markdown(f"Found with {versions} on {run.device}.") if versions else ""
    if not (command.startswith("-m ") or command.endswith(".py")):
        return [f"The report is of {code_span(command)}.", used]
    commands = f"whynan run --json report.json {command}\nwhynan fix report.json --patch -"
    return [code_block(commands, "sh"), _ARGUMENTS, used]


def _sentence(text: str) -> str:
    return markdown(text if text.endswith(".") else f"{text}.")
