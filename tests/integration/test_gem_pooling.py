"""The example as a person runs it: what it prints without whynan, with it, and mended; and what the README shows."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.integration import readme

ROOT = Path(__file__).parents[2]


def run(*options: str) -> str:
    """What the example prints."""
    command = [sys.executable, "examples/gem_pooling/train.py", *options]
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def without_versions(report: str) -> str:
    """The report with the versions of its first line taken out, whose padding depends on their length."""
    return re.sub(r" +whynan \S+ · torch \S+ · ", "  whynan · torch · ", report)


def test_the_report_names_the_line_the_value_and_the_cause(snapshot: SnapshotAssertion) -> None:
    assert without_versions(run()) == snapshot


def test_without_whynan_one_finite_loss_is_followed_by_nan() -> None:
    losses = [float(line.rsplit(" ", 1)[1]) for line in run("--plain").splitlines()]
    assert len(losses) == 4
    assert math.isfinite(losses[0])
    assert all(math.isnan(loss) for loss in losses[1:])


def test_the_mend_trains_and_is_clean() -> None:
    assert run("--fixed").startswith("clean: ")
    losses = [float(line.rsplit(" ", 1)[1]) for line in run("--fixed", "--plain", "--steps", "8").splitlines()]
    assert len(losses) == 8
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("block", readme.PRODUCERS)
def test_the_readme_shows_what_is_really_printed(block: str) -> None:
    shown = readme.blocks(readme.FILE.read_text(encoding="utf-8"))[block]
    assert shown == readme.PRODUCERS[block](), f"run: python {Path(readme.__file__).relative_to(ROOT)}"
