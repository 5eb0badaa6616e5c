"""The fixes that people published: each gets the verdict that measurement gives it, and none of them is verified."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType

import pytest

import whynan
from tests.quality.conftest import Tally
from tests.quality.seeds import FIXES, RIGHT, Published
from whynan.fixes import python as source
from whynan.fixes.diffs import apply_diff, read_diff
from whynan.records import Finding, FixVerdict
from whynan.run.proof.local_proof import judge_edit
from whynan.verify.in_place.visits import Visits, record_visits

TOLD = "published fixes told right"


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def failed(program: str) -> tuple[Path, Finding, Visits]:
    """The file of a program, what is found in it, and what its function's names were."""
    path = Path(mkdtemp(prefix="whynan-seeds-")) / "seed.py"
    path.write_text(program)
    module = loaded(path)
    finding = whynan.explain(module.once).findings[0]
    assert finding.site is not None
    with record_visits(str(path), program, finding.site.line) as (recorder, _):
        module.once()
    return path, finding, recorder.visits


def verdict(published: Published) -> FixVerdict:
    """What is said of a fix that comes as a diff."""
    path, finding, visits = failed(published.program)
    diff = source.patch("seed.py", published.program, published.edited)
    after = apply_diff(read_diff(diff), published.program)
    return judge_edit(published.program, after, str(path), finding, visits)


@pytest.mark.parametrize("name", FIXES)
def test_a_published_fix_gets_the_verdict_that_it_deserves(name: str, tally: Tally) -> None:
    told = verdict(FIXES[name])
    tally.count(TOLD, told.status in FIXES[name].right, 1)
    tally.listed(TOLD, f"{name}: {told.status}: {told.why}")
    assert told.status in FIXES[name].right, told


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_is_verified(name: str) -> None:
    told = verdict(RIGHT[name])
    assert told.status in RIGHT[name].right, told


WORSE: dict[str, tuple[str, str]] = {
    "a constant": ("scores.log_softmax(-1)", "(scores * 0 - 2.0)"),
    "a detach": ("scores.log_softmax(-1)", "scores.log_softmax(-1).detach()"),
    "another axis": ("scores.log_softmax(-1)", "scores.log_softmax(0)"),
    "half the gradient": ("scores.log_softmax(-1)", "(scores.log_softmax(-1) + scores.log_softmax(-1).detach()) / 2"),
    "nan_to_num": ("scores.log_softmax(-1)", "scores.softmax(-1).log().nan_to_num(neginf=-100.0)"),
}
"""How the right one is made wrong."""


@pytest.mark.parametrize("name", WORSE)
def test_the_right_one_made_wrong_is_rejected(name: str) -> None:
    right = RIGHT["the logarithm of a softmax"]
    old, new = WORSE[name]
    assert old in right.new
    assert verdict(replace(right, new=right.new.replace(old, new))).status == "rejected"
