"""Public bug reports, restated as programs: what `whynan run` says of each, held against what the thread says.

A folder in `reports` has `bug.py` and `report.toml`: the thread, the line, the rules that would be right, the number of
defects, and as a patch what its project made of it. The program so changed is the healthy twin; where there is a
`healthy.py`, that is. They were written without a look at what whynan says of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whynan.fixes.diffs import apply_diff, read_diff

FOLDER = Path(__file__).parent / "reports"
QUESTIONS = ("verdict", "line", "rule", "change", "one finding", "healthy")
FINE = ("clean", "damaged")
LIMIT = 300
"""Seconds for one program under whynan."""


@dataclass(frozen=True)
class BugReport:
    """One thread: where it is, and what is true of its program."""

    slug: str
    source: str
    lines: frozenset[int]
    rules: frozenset[str]
    defects: int
    patch: str

    @property
    def bug(self) -> str:
        """The program at fault."""
        return (FOLDER / self.slug / "bug.py").read_text("utf-8")

    @property
    def healthy(self) -> str:
        """Its healthy twin."""
        own = FOLDER / self.slug / "healthy.py"
        return own.read_text("utf-8") if own.exists() else apply_diff(read_diff(self.patch), self.bug)

    @property
    def is_held_out(self) -> bool:
        """Whether it is of the third that nobody reads while candidates are written."""
        return zlib.crc32(self.slug.encode()) % 3 == 0


def bug_reports() -> list[BugReport]:
    """All of them, by name."""
    found: list[BugReport] = []
    for path in sorted(FOLDER.glob("*/report.toml")):
        facts = tomllib.loads(path.read_text("utf-8"))
        lines = frozenset({facts["line"], *facts.get("also_lines", ())})
        rules, defects = frozenset(facts["rules"]), facts.get("defects", 1)
        found.append(BugReport(path.parent.name, facts["source"], lines, rules, defects, facts["patch"]))
    return found


def report_of(program: str, folder: Path) -> dict[str, Any]:
    """The JSON report of a program, which is written into a new folder as `bug.py` and run there."""
    folder.mkdir(parents=True)
    (folder / "bug.py").write_text(program, "utf-8")
    command = [sys.executable, "-m", "whynan", "run", "--json", "report.json", "bug.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    written = folder / "report.json"
    if not written.exists():
        raise AssertionError(f"exit {done.returncode}, no report: {done.stderr[-500:]}")
    return json.loads(written.read_text("utf-8"))


def scored(report: BugReport, folder: Path) -> dict[str, bool]:
    """For each of QUESTIONS whether the answer is right."""
    healthy = report_of(report.healthy, folder / "healthy")
    return {**answers(report, report_of(report.bug, folder / "bug")), "healthy": healthy["verdict"] in FINE}


def answers(report: BugReport, document: dict[str, Any]) -> dict[str, bool]:
    """What a report of the program at fault has right."""
    findings = document["findings"]
    first = findings[0] if findings else None
    fixes = [fix["verdict"]["status"] for finding in findings[:1] for fix in finding["fixes"] if fix["verdict"]]
    site = first and first["site"]
    return {
        "verdict": document["verdict"] == "nonfinite",
        "line": bool(site and Path(site["file"]).name == "bug.py" and site["line"] in report.lines),
        "rule": bool(first and (first["rule"] in report.rules or (not report.rules and first["rule"] != "WN000"))),
        "change": "verified" in fixes or "guarded" in fixes,
        "one finding": len(findings) == report.defects,
    }
