"""Whether a trace named a planted bad number: the bare run with the same overwrite is the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import whynan
from tests.quality.models import Step
from tests.quality.planted import PHASES, Nothing, Plant, Planted, Planter

if TYPE_CHECKING:
    from whynan.records import Finding, Report

MakeStep = Callable[[], Step]


@dataclass(frozen=True)
class Outcome:
    """One planting: what the bare run shows, and the reason for a miss, if it is one."""

    plant: Plant
    planted: Planted | None
    bad: dict[str, list[str]]
    miss: str | None
    remark: str | None = None

    def __str__(self) -> str:
        at = self.plant.candidate
        where = None if self.planted is None else list(self.planted.index)
        sinks = ", ".join(f"{kind} {names[0]} (of {len(names)})" for kind, names in self.bad.items()) or "no fatal sink"
        place = f"event {at.event} {at.stratum} {at.op} output {at.output} at {where} <- {self.plant.value}"
        return f"{place}; {sinks}: {self.miss or self.remark}"


def record(make: MakeStep) -> Planter:
    """The healthy bare run: how many events there are, and which outputs could be overwritten."""
    step = make()
    planter = Planter(step)
    with planter, Nothing():
        step.run()
    assert not step.bad, step.bad
    return planter


def bare(make: MakeStep, plant: Plant) -> tuple[dict[str, list[str]], Planter]:
    """The oracle: the fatal sinks that are bad when nobody watches."""
    step = make()
    planter = Planter(step, plant)
    with planter, Nothing():
        step.run()
    return step.bad, planter


def judge(make: MakeStep, plant: Plant, *, watch: Callable[[], Any] = whynan.trace) -> Outcome:
    """Plant in a bare run and in a traced one, and compare what the trace says with what the bare run shows."""
    bad, oracle = bare(make, plant)
    step = make()
    planter = Planter(step, plant)
    with planter, watch() as trace:
        step.run()
    report: Report = trace.report
    if planter.planted != oracle.planted or step.bad != bad:
        miss: str | None = f"the traced run itself differs from the bare one: {step.bad}"
    elif report.coverage.events != oracle.events:
        miss = f"{report.coverage.events} events counted of {oracle.events}"
    else:
        assert planter.planted is not None
        miss = _miss(report, trace.trace.births, plant, planter.planted, bool(bad), forward_sink="loss" in bad)
    return Outcome(plant, planter.planted, bad, miss)


def _miss(
    report: Report, births: list[Any], plant: Plant, planted: Planted, bad: bool, *, forward_sink: bool
) -> str | None:
    errors = [f for f in report.findings if f.severity == "error"]
    if not bad:
        return f"an error finding where nothing is bad: {_words(errors[0])}" if errors else None
    event = plant.candidate.event
    by_element = {id(b.element): b for b in births}
    labels = {b.label for b in births if b.event.ordinal == event}
    own = [f for f in errors if by_element[id(f.element)].event.ordinal == event]
    # a bad tensor kept for the backward: the backward event is the birth, the planted event its cause
    caused = [f for f in errors if f.phase == "backward" and by_element[id(f.element)].causes & labels]
    if not own and not (caused and plant.candidate.stratum == "forward" and not forward_sink):
        return f"not named; verdict {report.verdict}, {_words(errors[0]) if errors else 'no error finding'}"
    other = [f for f in errors if f not in own and f not in caused]
    if other:
        return f"named, and beside it {_words(other[0])}"
    return _wrong_facts(own[0], plant, planted) if own else None


def _wrong_facts(finding: Finding, plant: Plant, planted: Planted) -> str | None:
    if finding.op != plant.candidate.op:
        return f"operation {finding.op}"
    if finding.element.index != planted.index:
        return f"element {finding.element.index}"
    value = finding.element.value
    if value is None or not (value == plant.value or (math.isnan(value) and math.isnan(plant.value))):
        return f"value {value}"
    if finding.phase not in PHASES[plant.candidate.stratum]:
        return f"phase {finding.phase}"
    return None


def _words(finding: Finding) -> str:
    return f"{finding.birth} {finding.phase} {finding.op} at {finding.element.index}"
