"""The blind spots of anomaly mode: what it does not see, or names wrongly, is named with line, operation and values."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import whynan

if TYPE_CHECKING:
    from tests.quality.conftest import Tally
    from whynan.records import Finding, Report

INF = math.inf


def forward_nan_with_a_finite_gradient() -> None:
    x = torch.tensor([2.0, -1.5], requires_grad=True)
    torch.log(x).sum().backward()


def an_infinity() -> None:
    x = torch.tensor([4.0, 0.0], requires_grad=True)
    x.reciprocal().sum().backward()


def gradients_added_by_the_engine() -> None:
    x = torch.zeros(1, requires_grad=True)
    (x.sqrt() - x.clone().sqrt()).sum().backward()


def gradients_added_over_two_backwards() -> None:
    x = torch.zeros(1, requires_grad=True)
    x.sqrt().sum().backward()
    (-x.sqrt()).sum().backward()


def a_division_in_the_optimizer() -> None:
    x = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=0.1, eps=0.0, foreach=False)
    (x[:2] * 2).sum().backward()
    optimizer.step()


@dataclass(frozen=True)
class Expected:
    """One root as the report must tell it."""

    code: str
    op: str
    phase: str
    birth: str
    index: tuple[int, ...]
    operands: dict[str, float]
    forward: dict[str, float]


@dataclass(frozen=True)
class Spot:
    """A program whose bad number anomaly mode does not report, and what a trace must say."""

    program: Callable[[], None]
    expected: tuple[Expected, ...]
    meets: str | None
    reaches: frozenset[str]
    also: tuple[tuple[str, str, str], ...] = ()
    """Code, operation and phase of the other births of the same cause, under the same rule."""


def _root_at_zero(code: str, gradient: float) -> Expected:
    operands = {"self": gradient, "other": 0.0}
    return Expected(code, "aten.div.Tensor", "backward", "pole", (0,), operands, {"self": 0.0})


SPOTS = (
    Spot(
        forward_nan_with_a_finite_gradient,
        (Expected("torch.log(x)", "aten.log.default", "forward", "invalid", (1,), {"self": -1.5}, {}),),
        None,
        frozenset({"loss"}),
    ),
    Spot(
        an_infinity,
        (Expected("x.reciprocal()", "aten.reciprocal.default", "forward", "pole", (1,), {"self": 0.0}, {}),),
        None,
        frozenset({"loss", "gradient"}),
    ),
    Spot(
        gradients_added_by_the_engine,
        (_root_at_zero("x.clone().sqrt()", -1.0),),
        "aten.add.Tensor",
        frozenset({"gradient"}),
        (("x.sqrt()", "aten.div.Tensor", "backward"),),
    ),
    Spot(
        gradients_added_over_two_backwards,
        (
            _root_at_zero("x.sqrt()", 1.0),
            _root_at_zero("x.sqrt()", -1.0),
        ),
        "aten.add_.Tensor",
        frozenset({"gradient"}),
    ),
    Spot(
        a_division_in_the_optimizer,
        (
            Expected(
                "optimizer.step()", "aten.addcdiv_.default", "optimizer", "invalid", (2,),
                {"self": 1.0, "tensor1": 0.0, "tensor2": 0.0}, {},
            ),
        ),
        None,
        frozenset({"parameter"}),
    ),
)  # fmt: skip


def _line(program: Callable[[], None], code: str, occurrence: int = 0) -> int:
    lines, first = inspect.getsourcelines(program)
    return [first + i for i, line in enumerate(lines) if code in line][occurrence]


def _explained(program: Callable[[], None]) -> Report:
    with whynan.trace() as trace:
        program()
    return trace.report


def _differences(finding: Finding, expected: Expected, line: int) -> list[str]:
    site = finding.site
    assert site is not None
    told = {
        "file": Path(site.file).name, "line": site.line, "code": site.code, "op": finding.op, "phase": finding.phase,
        "birth": finding.birth, "index": finding.element.index, "severity": finding.severity,
        "operands": {o.name: o.value for o in finding.element.operands if o.name in expected.operands},
        "forward": {o.name: o.value for o in finding.forward_operands if o.name in expected.forward},
    }  # fmt: skip
    wanted = {
        "file": Path(__file__).name, "line": line, "code": expected.code, "op": expected.op, "phase": expected.phase,
        "birth": expected.birth, "index": expected.index, "severity": "error", "operands": expected.operands,
        "forward": expected.forward,
    }  # fmt: skip
    return [f"{key}: {told[key]!r}, not {wanted[key]!r}" for key in wanted if told[key] != wanted[key]]


@pytest.mark.parametrize("spot", SPOTS, ids=lambda s: s.program.__name__)
def test_a_blind_spot_is_named(spot: Spot, tally: Tally) -> None:
    report = _explained(spot.program)
    problems = [] if report.verdict == "nonfinite" else [f"verdict {report.verdict}"]
    findings = sorted(report.findings, key=lambda f: (f.site.line, f.site.column or 0) if f.site else (0, 0))
    if len(findings) != len(spot.expected):
        problems.append(f"{len(findings)} findings, not {len(spot.expected)}")
    seen: dict[str, int] = {}
    for finding, expected in zip(findings, spot.expected, strict=False):
        occurrence = seen.get(expected.code, 0)
        seen[expected.code] = occurrence + 1
        problems += _differences(finding, expected, _line(spot.program, expected.code, occurrence))
        if spot.meets is not None and (spot.meets, "accumulation") not in {(c.op, c.phase) for c in finding.chain}:
            problems.append(f"no step {spot.meets} in phase accumulation in the chain")
        if not spot.reaches <= {r.kind for r in finding.reaches}:
            problems.append(f"reaches {sorted({r.kind for r in finding.reaches})}, not {sorted(spot.reaches)}")
    also = [(finding.rule, member) for finding in findings for member in finding.also]
    if any(rule != member.rule or member.count != 1 for rule, member in also):
        problems.append("a birth of the same cause has another rule, or was counted again")
    named = tuple((m.site.code, m.op, m.phase) for _, m in also if m.site is not None)
    if named != spot.also:
        problems.append(f"also {named}, not {spot.also}")
    lines = [m.site.line for _, m in also if m.site is not None]
    if lines != [_line(spot.program, code) for code, _, _ in spot.also]:
        problems.append(f"also in lines {lines}")
    for problem in problems:
        tally.listed("blind spots", f"{spot.program.__name__}: {problem}")
    tally.count("blind spots", int(not problems), 1)
    assert not problems, problems


@pytest.mark.full
@pytest.mark.parametrize("spot", SPOTS, ids=lambda s: s.program.__name__)
def test_a_blind_spot_is_named_in_full(spot: Spot, tally: Tally) -> None:
    test_a_blind_spot_is_named(spot, tally)


@pytest.mark.parametrize("spot", SPOTS, ids=lambda s: s.program.__name__)
def test_anomaly_mode_is_silent_there(spot: Spot) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            spot.program()


def test_anomaly_mode_speaks_where_a_gradient_is_nan() -> None:
    x = torch.zeros(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="SqrtBackward0"):
        _under_anomaly_mode(lambda: (x.sqrt() * 0).sum().backward())


def _scaled_step(fused: bool, zero: bool) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    before = [p.detach().clone() for p in model.parameters()]
    scaler.scale(model(torch.ones(8, 4) * 8).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    if zero:
        optimizer.zero_grad()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("zero", [False, True])
def test_a_step_that_a_scaler_skips_is_clean(fused: bool, zero: bool, tally: Tally) -> None:
    with whynan.trace() as trace:
        _scaled_step(fused, zero)
    report = trace.report
    tally.count("skipped AMP steps", int(report.verdict == "clean"), 1, "clean")
    assert report.verdict == "clean", [(f.op, f.reaches) for f in report.findings]
    assert report.coverage.skipped_steps == 1 or not fused


def test_anomaly_mode_fires_on_the_step_that_the_scaler_skips() -> None:
    with pytest.raises(RuntimeError, match="returned nan values"):
        _under_anomaly_mode(_overflowing_scaled_step)


def _under_anomaly_mode(program: Callable[[], object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            program()


def _overflowing_scaled_step() -> None:
    x = torch.full((4,), 3.0, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    optimizer = torch.optim.SGD([x], lr=0.1)
    scaler.scale((x * torch.tensor([0.0, 1.0, 1.0, 1.0]) * 8).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def test_an_unscaled_step_with_the_same_gradient_is_seen() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with whynan.trace() as trace:
        (model(torch.ones(8, 4) * 8).square().mean() * 2.0**127).backward()
        optimizer.step()
    assert trace.report.verdict == "nonfinite"
