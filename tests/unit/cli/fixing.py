"""A program with a hazard, the report of its run with fixes, and what stands in for the rules' edits."""

from __future__ import annotations

import difflib
import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tests.unit.report.programs import finding, report
from whynan.fixes.candidates import Candidate, Declined, Formula
from whynan.records import Fix, FixVerdict, Report, Site
from whynan.report.json import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from whynan.records import Finding
    from whynan.records.intents import FixIntent

PROGRAM = """\
import torch


def entropy(x):
    p = x.softmax(-1)
    return -(p * p.log()).sum()


print(entropy(torch.zeros(3)))
"""
SITE = Site(file="net.py", line=6, column=18, end_line=6, end_column=25, code="p.log()", function="entropy")
EDITS = {"log_softmax": "x.log_softmax(-1)", "clamp": "p.clamp_min(1e-30).log()", "eps": "(p + 1e-7).log()"}
"""What each fix puts in the place of the logarithm."""
STATUSES = {"log_softmax": "verified", "clamp": "distorting", "eps": "rejected"}
WHY = {
    "log_softmax": "forward and backward finite; none of 10,871 healthy elements further from the truth",
    "clamp": "changes 3.1% of healthy elements, by up to 4e-08",
    "eps": "changes 50.6% of healthy elements, by up to 1.26",
}


def edited(text: str, site: Site, code: str) -> str:
    """A text with other code at a site."""
    lines = text.split("\n")
    line = lines[site.line - 1]
    assert site.column
    assert site.end_column
    lines[site.line - 1] = line[: site.column - 1] + code + line[site.end_column - 1 :]
    return "\n".join(lines)


def patch(path: str, before: str, after: str) -> str:
    """A unified diff."""
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
    return "".join(lines)


def candidates(text: str, found: Finding, intents: Sequence[FixIntent]) -> list[Candidate | Declined]:
    """An edit for each of the fixes, made of the place that the finding names and of nothing else."""
    assert found.site is not None
    formula = Formula(("p",), ("p",), found.site.line, "return p.log()")
    made: list[Candidate | Declined] = [Declined("attention", "the mask is not a name")]
    for title, code in EDITS.items():
        after = edited(text, found.site, code)
        made.append(Candidate(title, "guard", found.site.file, after, formula, formula, "entropy"))
    return made


class Mending(ModuleType):
    """Stands in for the repair of models: writes what it was asked for."""

    def mended_model(self, made: Report, output: str, choose: int | None = None) -> tuple[Fix, ...]:
        """Write a model to a file."""
        Path(output).write_text(f"{made.run.command} with fix {choose}")
        return (GRAPH,)


def standing_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edits by the stand-ins above."""
    from whynan.fixes import python as source

    monkeypatch.setitem(sys.modules, "whynan.run.fix.onnx", Mending("whynan.run.fix.onnx"))

    monkeypatch.setattr(source, "candidates", candidates, raising=False)
    monkeypatch.setattr(source, "consistent_candidates", candidates, raising=False)
    monkeypatch.setattr(source, "patch", patch, raising=False)


def fix(title: str, program: str = PROGRAM, site: Site = SITE, **more: Any) -> Fix:
    """A fix of the source, as a run tells of it."""
    verdict = FixVerdict(status=STATUSES[title], why=WHY[title])
    change = patch(site.file, program, edited(program, site, EDITS[title]))
    return Fix(**{"title": title, "kind": "source", "patch": change, "verdict": verdict} | more)


SETTING = Fix(title="train in float64", kind="setting", patch=None, verdict=FixVerdict(status="unverified"))
GRAPH = Fix(
    title="LogSoftmax",
    kind="graph",
    patch="- Log(Softmax(x))\n+ LogSoftmax(x)\n",
    verdict=FixVerdict(status="verified"),
)


def told(*fixes: Fix, site: Site | None = SITE, program: bytes | None = None, **more: Any) -> Report:
    """The report of a run of the program, with these fixes."""
    content = PROGRAM.encode() if program is None else program
    known = () if site is None else ({"file": site.file, "sha256": hashlib.sha256(content).hexdigest()},)
    found = finding(rule="WN206", name="log-of-softmax", site=site, fixes=fixes)
    return report(found, **{"run": {"sources": known}} | more)


FIXES = (fix("log_softmax"), fix("clamp"), fix("eps"), SETTING, GRAPH)


def save(here: Path, made: Report, name: str = "report.json") -> str:
    """A report in a file."""
    (here / name).write_text(to_json(made), encoding="utf-8")
    return name
