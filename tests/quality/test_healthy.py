"""No false alarm: healthy models and programs are clean, and the check sees a defect planted in them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
import torch

import whynan
from tests.quality import healthy_generation as _generation  # noqa: F401
from tests.quality import healthy_training as _training  # noqa: F401
from tests.quality.healthy_numbers import PROGRAMS
from tests.quality.models import BY_NAME, NAMES, Step, Variant, variants

if TYPE_CHECKING:
    from tests.quality.conftest import Tally
    from whynan.records import Report

OBSERVED = {"metrics_that_are_nan_by_design": "(NaN that the program reads is a warning, unless allowed)"}


def _told(report: Report) -> str:
    return "; ".join(
        f"{f.severity} {f.birth} {f.phase} {f.op} at {f.site and f.site.code!r} reaches "
        + ", ".join(f"{r.kind} {r.name or ''}".strip() for r in f.reaches[:3])
        for f in (*report.findings, *report.damaging)
    )


def _trace(step: Step) -> Report:
    with whynan.trace() as trace:
        step.run()
    assert not step.bad, f"not a healthy program: {step.bad}"
    return trace.report


def _all_clean(name: str, chosen: list[Variant], tally: Tally) -> None:
    alarms: list[str] = []
    for variant in chosen:
        report = _trace(Step(BY_NAME[name], variant))
        if report.verdict != "clean":
            alarms.append(f"{name} {variant}: {report.verdict}: {_told(report)}")
    for alarm in alarms:
        tally.listed("healthy models", alarm)
    tally.count("healthy models", len(chosen) - len(alarms), len(chosen), "clean")
    assert not alarms, alarms


@pytest.mark.parametrize("name", NAMES)
def test_a_training_step_is_clean_in_one_variant(name: str, tally: Tally) -> None:
    found = variants(BY_NAME[name])
    _all_clean(name, [found[NAMES.index(name) % len(found)]], tally)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_a_training_step_is_clean(name: str, tally: Tally) -> None:
    _all_clean(name, variants(BY_NAME[name]), tally)


def test_the_zoo_is_as_large_as_promised() -> None:
    named = "bert llama gpt2 mistral opt gemma2 qwen2 bloom mamba t5 deberta-v2 longformer big_bird xlnet gpt_neo"
    assert set(named.split()) <= set(NAMES)
    assert len(set(NAMES) - set(named.split())) >= 20


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_healthy_program_is_clean(name: str, tally: Tally) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with whynan.trace() as trace:
            PROGRAMS[name]()
    report = trace.report
    good = report.verdict in (("clean", "damaged") if name in OBSERVED else ("clean",))
    if report.verdict != "clean":
        tally.listed("healthy programs", f"{name}: {report.verdict}: {_told(report)} {OBSERVED.get(name, '')}")
    tally.count("healthy programs", int(good), 1, "without an alarm")
    assert good, _told(report)


@pytest.mark.full
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_healthy_program_is_clean_in_full(name: str, tally: Tally) -> None:
    test_a_healthy_program_is_clean(name, tally)


def test_a_defect_in_a_model_is_seen() -> None:
    step = Step(BY_NAME["llama"], Variant("eager"))
    step.model.model.layers[1].mlp.down_proj.weight.data[0, 0] = float("nan")
    with whynan.trace() as trace:
        step.run()
    assert trace.report.verdict == "nonfinite"


def test_a_row_masked_entirely_is_seen() -> None:
    model = torch.nn.Linear(4, 6)
    with whynan.trace() as trace:
        scores = model(torch.randn(2, 4)).masked_fill(torch.tensor([[True] * 6, [False] * 6]), -float("inf"))
        scores.softmax(-1).square().sum().backward()
    assert trace.report.verdict == "nonfinite"
    assert (trace.report.findings[0].op, trace.report.findings[0].birth) == ("aten._softmax.default", "invalid")


def test_a_scaler_that_skips_nothing_is_seen() -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    with whynan.trace() as trace:
        (model(torch.ones(8, 4) * 3e30).square().mean() * 1e30).backward()
        optimizer.step()
    assert trace.report.verdict == "nonfinite"


def test_memory_read_before_it_is_filled_is_seen() -> None:
    model = torch.nn.Linear(4, 4)
    with whynan.trace() as trace:
        out = torch.empty(2, 4)
        out.fill_(float("nan"))
        out[0] = model(torch.randn(4))
        out.sum().backward()
    assert trace.report.verdict == "nonfinite"


def test_a_mean_over_missing_values_is_seen() -> None:
    model = torch.nn.Linear(3, 1)
    x = torch.randn(6, 3)
    x[0, 1] = float("nan")
    with whynan.trace() as trace:
        model(torch.where(torch.isnan(x), x.mean(0), x)).square().mean().backward()
    finding = trace.report.findings[0]
    assert (trace.report.verdict, finding.birth, finding.op) == ("nonfinite", "entered", None)
