"""Every hazard's failing operation is packed, reproduced bit by bit, explained as before, and shown by its script."""

from __future__ import annotations

import contextlib
import io
import random
import runpy
import warnings
from typing import TYPE_CHECKING

import pytest
import torch

import whynan
from tests.quality.variants import further_hazards as _further  # noqa: F401
from tests.quality.variants.hazards import HAZARDS, NoSuchNumberError
from tests.quality.variants.programs import Variant, alone, breaks, variants_of, written
from whynan.capsule import open_capsule
from whynan.run.capsule.replay import SAME_BITS, replay_capsule
from whynan.run.output.capsules import ENTERED

if TYPE_CHECKING:
    from pathlib import Path

SHARE = 24
LEAST = 0.97
"""Of the findings that an operation bore."""


def variants() -> list[Variant]:
    """One variant of each hazard, always the same."""
    draw = random.Random(1)
    return [draw.choice([v for v in variants_of(hazard) if v.setting != "onnx"]) for hazard in HAZARDS]


def lost(variant: Variant, folder: Path, name: str) -> str | None:
    """What is wrong with the capsule of a variant; None where nothing is, or there is no such variant."""
    try:
        module = written(variant, folder, name, bad=True)
    except NoSuchNumberError:
        return None
    outcome = alone(module)
    if outcome.raised is not None or not breaks(variant, outcome):
        return None
    place = folder / f"{name}.capsule"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = whynan.explain(module.main, *module.operands(), capsule=place)
    if not report.findings:
        return None
    held = open_capsule(place)
    if held.document.operation is None:
        return None if held.document.why == ENTERED else f"no operation: {held.document.why}"
    again = replay_capsule(str(place))
    if SAME_BITS not in again.coverage.typed_notes or not again.findings:
        return f"not reproduced: {again.coverage.notes}"
    if again.findings[0].rule != held.finding.rule:
        return f"{again.findings[0].rule} in the replay, {held.finding.rule} in the run"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(place / "repro.py"))
    return None if "NaN or Inf" in said.getvalue() and " and 0 of" not in said.getvalue() else said.getvalue()


def _hold(chosen: list[Variant], folder: Path) -> None:
    threads = torch.get_num_threads()
    try:
        found = {str(v): lost(v, folder, f"v{i}") for i, v in enumerate(chosen)}
    finally:
        torch.set_num_threads(threads)
    wrong = {name: why for name, why in found.items() if why is not None}
    assert len(wrong) <= (1 - LEAST) * len(found), wrong


def test_a_share_of_the_hazards_is_packed_and_reproduced(tmp_path: Path) -> None:
    chosen = variants()
    _hold(random.Random(2).sample(chosen, SHARE), tmp_path)


@pytest.mark.full
def test_every_hazard_is_packed_and_reproduced(tmp_path: Path) -> None:
    _hold(variants(), tmp_path)
