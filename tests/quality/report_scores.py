"""Public bug reports, restated as programs: what `whynan run` says of each, held against what the thread says.

A folder in `reports` has `bug.py`, `healthy.py` (the same program with the accepted change) and `report.toml` (the
thread, the line, the rules that would be right, the number of defects). They were written without a look at what whynan
says of them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "reports"
QUESTIONS = ("verdict", "line", "rule", "change", "one finding", "healthy")
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
        found.append(
            BugReport(path.parent.name, facts["source"], lines, frozenset(facts["rules"]), facts.get("defects", 1))
        )
    return found


def report_of(program: Path, folder: Path) -> dict[str, Any]:
    """The JSON report of a copy of a program, run in an empty folder."""
    folder.mkdir(parents=True)
    shutil.copy(program, folder / program.name)
    command = [sys.executable, "-m", "whynan", "run", "--json", "report.json", program.name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    written = folder / "report.json"
    if not written.exists():
        raise AssertionError(f"{program}: exit {done.returncode}, no report: {done.stderr[-500:]}")
    return json.loads(written.read_text("utf-8"))


def scored(report: BugReport, folder: Path) -> dict[str, bool]:
    """For each of QUESTIONS whether the answer is right."""
    bug = report_of(FOLDER / report.slug / "bug.py", folder / "bug")
    healthy = report_of(FOLDER / report.slug / "healthy.py", folder / "healthy")
    return {**answers(report, bug), "healthy": healthy["verdict"] in ("clean", "damaged")}


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
