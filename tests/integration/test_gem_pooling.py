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


@pytest.mark.parametrize("block", ["demo", "explain"])
def test_the_readme_shows_what_is_really_printed(block: str) -> None:
    shown = readme.blocks(readme.FILE.read_text(encoding="utf-8"))[block]
    assert shown == readme.PRODUCERS[block](), f"run: python {Path(readme.__file__).relative_to(ROOT)}"


def test_the_readme_shows_what_is_really_printed_of_a_run() -> None:
    shown = readme.without_rounding(readme.blocks(readme.FILE.read_text(encoding="utf-8"))["run"])
    assert shown == readme.without_rounding(readme.run()), f"run: python {Path(readme.__file__).relative_to(ROOT)}"


@pytest.mark.parametrize(
    ("was", "is_now"),
    [
        (":52:27", ":53:27"),
        ("f32[2, 65, 257]", "f32[2, 65, 256]"),
        ("WN401", "WN402"),
        ("at line 65", "at line 66"),
        ("none of", "1 of"),
        ("(893 operations", "(894 operations"),
        ("whynan 0.1.0", "whynan 0.1.1"),
        ("165 of 298", "166 of 298"),
        ("reaches  4 gradients", "reaches  5 gradients"),
    ],
)
def test_what_no_rounding_makes_is_compared(was: str, is_now: str) -> None:
    shown = readme.blocks(readme.FILE.read_text(encoding="utf-8"))["run"]
    assert was in shown
    assert readme.without_rounding(shown.replace(was, is_now)) != readme.without_rounding(shown)


def test_another_processors_rounding_is_no_other_readme() -> None:
    here = "element  [0, 0, 169] is Inf, and 13,408 more\n  -1.014e-20 minus -0 is -1.014e-20; none of 637,376"
    there = "element  [0, 1, 3] is Inf, and 9,408,122 more -2.1e-21 minus 0 is -2.1e-21; none of 637,354"
    assert readme.without_rounding(here) == readme.without_rounding(there)
