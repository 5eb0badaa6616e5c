"""The fixes that people published, given to ``whynan fix --try``: each gets the verdict that measurement gives it."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.quality.conftest import Tally
from tests.quality.seeds import FIXES, RIGHT, Published
from whynan.fixes.source import patch

STATUSES = {"verified": 0, "distorting": 1, "rejected": 1, "unverified": 2}


def whynan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whynan", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@cache
def failed(program: str) -> Path:
    """The folder of a run of a program, with its report and its capsule."""
    folder = Path(mkdtemp(prefix="whynan-seeds-"))
    (folder / "seed.py").write_text(program)
    done = whynan(folder, "run", "--quiet", "--json", "report.json", "--capsule", "failure", "seed.py")
    assert done.returncode == 1, done.stderr
    return folder


def verdict(published: Published) -> dict[str, Any]:
    """What is said of a fix."""
    folder = failed(published.program)
    (folder / "my.diff").write_text(patch("seed.py", published.program, published.edited))
    done = whynan(folder, "fix", "report.json", "--capsule", "failure", "--try", "my.diff", "--json", "verdict.json")
    told = json.loads((folder / "verdict.json").read_text())["verdict"]
    assert done.returncode == STATUSES[told["status"]], done.stderr
    assert (folder / "seed.py").read_text() == published.program
    return told


@pytest.mark.parametrize("name", FIXES)
def test_a_published_fix_gets_the_verdict_that_it_deserves(name: str, tally: Tally) -> None:
    told = verdict(FIXES[name])
    tally.count("fixes of the seed documents told right", told["status"] in FIXES[name].right, 1)
    tally.note("fixes of the seed documents told right", f"{name}: {told['status']}: {told['why']}")
    assert told["status"] in FIXES[name].right, told


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_is_verified(name: str) -> None:
    told = verdict(RIGHT[name])
    assert told["status"] in RIGHT[name].right, told
