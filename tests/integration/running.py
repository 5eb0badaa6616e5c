"""Runs a program of tests/programs by Python and by whynan, in the same folder, and tells what differs."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import zipapp
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.programs import Program

HOME = Path(__file__).parents[1] / "programs"
WHYNAN = Path(sys.executable).with_name("whynan")
WARNING = re.compile(
    rb"^(\S.*: RuntimeWarning: whynan met an error of its own .*\n(  .*\n)?|whynan: .*\n)", re.MULTILINE
)
"""What whynan says of an error of its own, with the line of source that Python puts under it."""


@dataclass(frozen=True)
class Outcome:
    """What a run left: its exit status, what it wrote, the files that are there after it."""

    status: int
    stdout: bytes
    stderr: bytes
    files: tuple[str, ...]
    temporary: tuple[str, ...]


class Workplace:
    """A folder in which each run finds everything as the run before it did, under the same names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.report = folder / "report.json"
        self._references: dict[tuple[str, str], Outcome] = {}

    def by_python(self, program: Program, more: Mapping[str, str] | None = None) -> Outcome:
        """What the program does without whynan; run once."""
        key = program.name, repr(more)
        if key not in self._references:
            self._references[key] = self._run(program, [], more or {})
        return self._references[key]

    def by_whynan(
        self,
        program: Program,
        more: Mapping[str, str] | None = None,
        options: Sequence[str] = ("--quiet",),
    ) -> Outcome:
        """What it does under ``whynan run``, whose report is left in ``report``."""
        self.report.unlink(missing_ok=True)
        return self._run(program, [str(WHYNAN), "run", "--json", str(self.report), *options], more or {})

    def told(self) -> dict[str, Any] | None:
        """The report of the last run; None where there is none."""
        return json.loads(self.report.read_text(encoding="utf-8")) if self.report.exists() else None

    def _run(self, program: Program, between: list[str], more: Mapping[str, str]) -> Outcome:
        self._tidy(program)
        process = subprocess.Popen(
            [sys.executable, *program.flags, *between, *program.command],
            cwd=self.work,
            env={**self._environment(), **more, **program.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # a signal to the group is for the program's own
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(program.stdin, timeout=300)
        except BaseException:
            os.killpg(process.pid, 9)
            raise
        return Outcome(process.returncode, stdout, stderr, _names(self.work), _names(self.folder / "tmp"))

    def _tidy(self, program: Program) -> None:
        for name in ("work", "tmp", "home"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        shutil.copytree(HOME, self.work, ignore=_no_program)
        for name in ("tmp", "home"):
            (self.folder / name).mkdir()
        for name, target in program.links.items():
            (self.work / name).symlink_to(target)
        for name, target in program.archives.items():
            zipapp.create_archive(self.work / target, self.work / name)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "MPLCONFIGDIR": str(self.folder / "matplotlib"),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
        }


def _no_program(folder: str, names: list[str]) -> list[str]:
    """What somebody's run has left beside the programs."""
    return [n for n in names if n == "__pycache__" or (os.path.isfile(os.path.join(folder, n)) and n[-3:] != ".py")]


def _names(folder: Path) -> tuple[str, ...]:
    """Every file under a folder, but for what Python and compilers keep of modules for the next time."""
    names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    return tuple(sorted(n for n in names if not re.search(r"__pycache__|torchinductor|\.pyc$", n)))


def differences(expected: Outcome, found: Outcome) -> list[str]:
    """What a user would see otherwise: one text for each of exit status, streams, files."""
    told: list[str] = []
    if found.status != expected.status:
        told.append(f"exit status: {found.status}, not {expected.status}")
    for stream in ("stdout", "stderr"):
        one, other = getattr(expected, stream), getattr(found, stream)
        if one != other:
            told.append(f"{stream}:\n" + _difference(one, other))
    for kind in ("files", "temporary"):
        one, other = getattr(expected, kind), getattr(found, kind)
        if one != other:
            told.append(f"{kind}: {sorted(set(one) ^ set(other))}")
    return told


def _difference(one: bytes, other: bytes) -> str:
    lines = [text.decode("utf-8", "backslashreplace").splitlines(keepends=True) for text in (one, other)]
    return "".join(difflib.unified_diff(lines[0], lines[1], "python", "whynan", n=0))


def without_warnings(outcome: Outcome) -> tuple[Outcome, list[str]]:
    """An outcome without what whynan said of an error of its own, and what that was."""
    said = [m.group().decode() for m in WARNING.finditer(outcome.stderr)]
    stderr = WARNING.sub(b"", outcome.stderr)
    temporary = tuple(n for n in outcome.temporary if not re.fullmatch(r"whynan-\w+\.traceback", n))
    return Outcome(outcome.status, outcome.stdout, stderr, outcome.files, temporary), said
