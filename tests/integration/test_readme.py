"""The README and the page on fixes show what is really printed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration import readme
from tests.integration.readme import ROOT


@pytest.mark.process
def test_the_readme_shows_what_make_demo_runs() -> None:
    recipe = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--assume-old=.venv/.stamp-demo", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert recipe == [f".venv/bin/whynan {' '.join(readme.DEMO)} || test $? -eq 1"]


@pytest.mark.process
@pytest.mark.parametrize("block", ["demo", "explain"])
def test_the_readme_shows_what_is_really_printed(block: str) -> None:
    assert readme.shown(block) == readme.PRODUCERS[block](), f"run: python {Path(readme.__file__).relative_to(ROOT)}"


@pytest.mark.full
def test_the_page_on_fixes_shows_what_is_really_printed_of_a_run() -> None:
    shown = readme.without_rounding(readme.shown("run"))
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
    shown = readme.shown("run")
    assert was in shown
    assert readme.without_rounding(shown.replace(was, is_now)) != readme.without_rounding(shown)


def test_another_processors_rounding_is_no_other_readme() -> None:
    here = "element  [0, 0, 169] is Inf, and 13,408 more\n  -1.014e-20 minus -0 is -1.014e-20; none of 637,412"
    there = "element  [0, 1, 3] is Inf, and 9,408,122 more -2.1e-21 minus 0 is -2.1e-21; none of 637,354"
    assert readme.without_rounding(here) == readme.without_rounding(there)
