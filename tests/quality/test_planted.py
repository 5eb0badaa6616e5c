"""Planted births: one overwritten element of one event is named, and only where it does harm."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

import whynan
from tests.quality.judge import judge, record
from tests.quality.models import BY_NAME, NAMES, Spec, Step, Variant, variants
from tests.quality.planted import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.quality.conftest import Tally
    from whynan.records import Report

OPTIMIZERS = ("default", "foreach", "fused")
FULL = {"forward": 14, "backward": 13, "accumulation": 5, "optimizer": 6, "buffer": 2}
SAMPLE = {"forward": 3, "backward": 3, "accumulation": 1, "optimizer": 1, "buffer": 1}
SAMPLED = ("gpt2", "t5", "mamba", "resnet", "mixtral")
# besides one variant of every model: how a step may run otherwise
OTHERWISE = (
    ("bert", "sdpa-dropout"),
    ("llama", "eager-reentrant"),
    ("gpt2", "sdpa-nonreentrant"),
    ("qwen2", "sdpa-bf16"),
    ("t5", "eager-nonreentrant"),
    ("vit", "sdpa-bf16"),
    ("mistral", "sdpa-reentrant"),
    ("bart", "eager-dropout"),
)


def _maker(name: str, variant: Variant | None) -> Callable[[], Step]:
    spec: Spec = BY_NAME[name]
    number = NAMES.index(name)
    attention = ("sdpa", "eager")[number % 2]
    chosen = variant or next(v for v in variants(spec) if v.attention in (attention, None))
    return functools.partial(Step, spec, chosen, micro=2, optimizer=OPTIMIZERS[number % 3])


def _plant_all(name: str, shares: dict[str, int], tally: Tally, variant: Variant | None = None) -> None:
    make = _maker(name, variant)
    plants = draw(record(make).candidates, NAMES.index(name), shares)
    outcomes = [judge(make, plant) for plant in plants]
    missed = [o for o in outcomes if o.miss is not None]
    harmful = [o for o in outcomes if o.bad]
    tally.count("planted", len(outcomes) - len(missed), len(outcomes))
    tally.count("planted, a fatal sink bad: named", sum(o.miss is None for o in harmful), len(harmful))
    tally.count(
        "planted, no fatal sink bad: no error",
        len(outcomes) - len(harmful) - sum(not o.bad for o in missed),
        len(outcomes) - len(harmful),
    )
    for outcome in outcomes:
        if outcome.miss is not None or outcome.remark is not None:
            tally.listed("planted", f"{name} {variant or ''} {outcome}")
    assert not missed, "\n".join(str(o) for o in missed)


@pytest.mark.parametrize("name", SAMPLED)
def test_planted_births_are_named_in_a_sample_of_the_zoo(name: str, tally: Tally) -> None:
    _plant_all(name, SAMPLE, tally)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_planted_births_are_named(name: str, tally: Tally) -> None:
    _plant_all(name, FULL, tally)


@pytest.mark.full
@pytest.mark.parametrize(("name", "way"), OTHERWISE)
def test_planted_births_are_named_however_the_step_runs(name: str, way: str, tally: Tally) -> None:
    (variant,) = [v for v in variants(BY_NAME[name]) if str(v) == way]
    _plant_all(name, FULL, tally, variant)


class _Blind:
    """A trace that saw every event and says that all is well."""

    def __init__(self) -> None:
        self._inner: Any = whynan.trace()

    def __enter__(self) -> _Blind:
        self._inner.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._inner.__exit__(*details)

    @property
    def trace(self) -> Any:
        return self._inner.trace

    @property
    def report(self) -> Report:
        return self._inner.report.model_copy(update={"verdict": "clean", "findings": ()})


class _NextDoor(_Blind):
    """A trace that names the event after the one at fault."""

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)
        for birth in self._inner.trace.births:
            object.__setattr__(birth.event, "ordinal", birth.event.ordinal + 1)

    @property
    def report(self) -> Report:
        return self._inner.report


@pytest.mark.parametrize("watch", [_Blind, _NextDoor])
def test_a_trace_that_names_nothing_or_the_next_event_is_a_miss(watch: Callable[[], Any]) -> None:
    make = _maker("gpt2", None)
    plants = draw(record(make).candidates, 0, SAMPLE)
    outcomes = [judge(make, plant, watch=watch) for plant in plants]
    harmful = [o for o in outcomes if o.bad]
    assert harmful
    assert all(o.miss is not None for o in harmful)


def test_every_stratum_is_planted() -> None:
    plants = draw(record(_maker("resnet", None)).candidates, 0, SAMPLE)
    assert {p.candidate.stratum for p in plants} == set(SAMPLE)
