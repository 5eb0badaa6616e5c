"""The rule of a hazard speaks however the hazard is spelled, and nothing does where its operands are healthy.

Of each hazard in ``variants/hazards.py`` program files are made: other spellings, dtypes, surroundings, and the ONNX
export. What torch, the exporter or the engine refuses, and what does not break in plain torch, is no variant; it is
counted apart.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest
import torch

from tests.quality.variants import further_hazards as _further  # noqa: F401
from tests.quality.variants.hazards import HAZARDS, Hazard
from tests.quality.variants.judging import Judged, judge
from tests.quality.variants.programs import DTYPES, FORMS, SETTINGS, Variant, source, variants_of
from whynan.rules import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.quality.conftest import Tally

SHARE: Final = 0.95
EXPORTED: Final = 4
NO_EXPRESSION: Final = {"WN002", "WN003", "WN004", "WN707", "WN801", "WN810", "WN901"}
"""Rules of memory, of what a program writes, of a run's past and of an optimizer."""


def eager(hazard: Hazard) -> list[Variant]:
    """The variants of a hazard that torch runs."""
    return [v for v in variants_of(hazard) if v.setting != "onnx"]


def sample() -> list[Variant]:
    """The default share, always the same: one of each hazard."""
    draw = random.Random(0)
    found = [draw.choice(eager(hazard)) for hazard in HAZARDS]
    forward = [hazard for hazard in HAZARDS if not hazard.backward]
    return found + [Variant(hazard, setting="onnx") for hazard in draw.sample(forward, EXPORTED)]


def both(chosen: Iterable[Variant], folder: Path) -> list[Judged]:
    """Each variant on operands with which it breaks, and on healthy ones."""
    return [
        judge(variant, folder, f"v{i}_{'bad' if bad else 'good'}", bad=bad)
        for i, variant in enumerate(chosen)
        for bad in (True, False)
    ]


def _counted(found: list[Judged], tally: Tally) -> tuple[float, list[str]]:
    """The share of the variants that have their rule, and the counter-variants that have any."""
    there = [j for j in found if j.skipped is None]
    bad, good = [j for j in there if j.bad], [j for j in there if not j.bad]
    for axis in (*FORMS, *SETTINGS[1:]):
        of = [j for j in bad if j.variant.axis == axis]
        tally.count(f"variants, {axis}", sum(j.right for j in of), len(of), "named")
    tally.count("variants, all", sum(j.right for j in bad), len(bad), "have the rule of their hazard")
    tally.count("counter-variants", sum(j.right for j in good), len(good), "silent")
    for j in bad:
        if not j.right:
            tally.listed("variants, all", f"{j.variant}: {', '.join(j.rules) or 'nothing'}")
    left_out = Counter((j.skipped, j.variant.axis) for j in found if j.skipped)
    for (why, axis), times in sorted(left_out.items(), key=str):
        tally.listed("counter-variants", f"no such variant: {axis}: {why}: {times}")
    return sum(j.right for j in bad) / len(bad), [f"{j.variant}: {j.rules}" for j in good if not j.right]


def _hold(found: list[Judged], tally: Tally) -> None:
    share, alarms = _counted(found, tally)
    assert not alarms, alarms
    assert share >= SHARE


def test_a_share_of_the_variants_has_its_rule(tmp_path: Path, tally: Tally) -> None:
    _hold(both(sample()[::3], tmp_path), tally)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_variants_have_their_rules(dtype: str, tmp_path: Path, tally: Tally) -> None:
    _hold(both((v for hazard in HAZARDS for v in eager(hazard) if v.dtype == dtype), tmp_path), tally)


@pytest.mark.full
@pytest.mark.parametrize(
    "dtype", [d for d in DTYPES if d != "bfloat16"]
)  # NumPy has none, and no operator of ORT's CPU
def test_the_exported_variants_have_their_rules(dtype: str, tmp_path: Path, tally: Tally) -> None:
    _hold(both((Variant(h, dtype=dtype, setting="onnx") for h in HAZARDS if not h.backward), tmp_path), tally)


def test_every_rule_of_an_expression_has_hazards() -> None:
    silent = {rule.code for rule in catalogue.rules() if rule.reads}
    without = {rule.code for rule in catalogue.rules()} - {hazard.rule for hazard in HAZARDS}
    assert without - silent == NO_EXPRESSION


def test_a_rule_that_is_gone_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [v for v in sample() if v.hazard.rule == "WN206"]
    found = both(chosen, tmp_path)
    assert all(j.right for j in found)
    assert any(j.bad and j.skipped is None for j in found)
    left = tuple(rule for rule in catalogue.rules() if rule.code != "WN206")
    monkeypatch.setattr(catalogue, "rules", lambda: left)
    again = both(chosen, tmp_path)
    assert not any(j.right for j in again if j.bad and j.skipped is None)


def test_a_finding_of_a_counter_variant_is_an_alarm(tmp_path: Path) -> None:
    variant = Variant(next(h for h in HAZARDS if h.code == "torch.log(x)"))
    found = judge(variant, tmp_path, "planted", bad=True)
    assert found.right
    assert not Judged(variant, bad=False, rules=found.rules).right


def test_operands_that_are_not_healthy_are_no_counter_variant(tmp_path: Path) -> None:
    hazard = Hazard("WN201", "torch.log(x)", lambda _: {"x": [0.0]}, {"x": [0.0]})
    with pytest.raises(AssertionError, match="no healthy program"):
        judge(Variant(hazard), tmp_path, "planted", bad=False)


def test_the_spellings_are_different_programs_with_one_result() -> None:
    hazard = next(h for h in HAZARDS if h.code == "torch.log(1 + torch.exp(x))")
    texts = {form: source(Variant(hazard, form), bad=True) for form in FORMS}
    assert len(set(texts.values())) == len(texts) == len(FORMS)
    assert "(1 + x.exp()).log()" in texts["method"][0]
    assert "t1.log_()" in texts["in-place"][0]
    assert texts["helper"][1] is not None


def test_operands_follow_the_dtype() -> None:
    hazard = next(h for h in HAZARDS if h.code == "torch.exp(x)")
    found = {d: hazard.bad(torch.finfo(getattr(torch, d)))["x"][0] for d in DTYPES}
    assert found["float16"] < 20 < 150 < found["float32"] < found["float64"]
