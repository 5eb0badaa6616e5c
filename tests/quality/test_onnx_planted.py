"""Planted births in ONNX models: one overwritten element of one value is named, and only where an output turns bad."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.quality.onnx_models import MODELS
from tests.quality.onnx_planting import as_executed, candidates, draw, judge, planted, traced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import onnx

    from tests.quality.conftest import Tally
    from whynan.analysis import Findings

FULL = 40
SAMPLE = {"resnet50": 1, "transformer": 9, "lstm": 6, "loop": 9}


def _plant_all(name: str, count: int, tally: Tally) -> None:
    model, feeds = MODELS[name]()
    outcomes = [judge(model, feeds, plant, as_executed) for plant in draw(candidates(model, feeds), len(name), count)]
    bad = [o for o in outcomes if o.bad]
    fine = [o for o in outcomes if not o.bad]
    missed = [o for o in outcomes if o.miss is not None]
    tally.count("planted in ONNX models", len(outcomes) - len(missed), len(outcomes))
    tally.count("planted in ONNX models, an output bad: named", sum(o.miss is None for o in bad), len(bad))
    tally.count("planted in ONNX models, none bad: no error", sum(o.miss is None for o in fine), len(fine))
    for outcome in missed:
        tally.listed("planted in ONNX models", f"{name} {outcome}")
    assert not missed, "\n".join(str(o) for o in missed)


@pytest.mark.parametrize("name", SAMPLE)
def test_planted_births_are_named_in_a_sample(name: str, tally: Tally) -> None:
    _plant_all(name, SAMPLE[name], tally)


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_planted_births_are_named(name: str, tally: Tally) -> None:
    _plant_all(name, FULL, tally)


@pytest.mark.full
@pytest.mark.parametrize("name", ["transformer", "lstm", "loop"])
def test_they_are_named_in_the_graph_as_written_too(name: str) -> None:
    model, feeds = MODELS[name]()
    outcomes = [judge(model, feeds, plant, traced) for plant in draw(candidates(model, feeds), 1, FULL)]
    missed = [str(o) for o in outcomes if o.miss is not None]
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("watch", [traced, as_executed])
@pytest.mark.parametrize("name", ["transformer", "lstm", "loop"])
def test_a_model_without_a_plant_is_clean(name: str, watch: Callable[..., Findings]) -> None:
    found = watch(*MODELS[name]())
    assert (found.verdict, found.escaped, found.damaging, found.absorbed) == ("clean", (), (), ())


def _blind(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Findings:
    """Sees everything, and says that all is well."""
    return replace(traced(model, feeds), verdict="clean", escaped=())


def _next_door(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Findings:
    """Names another node than the one at fault."""
    found = traced(model, feeds)
    return replace(found, escaped=tuple(f.model_copy(update={"node": f"{f.node}/Relu"}) for f in found.escaped))


def _next_to_it(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Findings:
    """Names another element of the node at fault."""
    found = traced(model, feeds)
    moved = [f.model_copy(update={"element": f.element.model_copy(update={"index": (99,)})}) for f in found.escaped]
    return replace(found, escaped=tuple(moved))


def _crying(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Findings:
    """Makes an error of every birth, whether it reaches an output or not."""
    found = traced(model, feeds)
    errors = tuple(f.model_copy(update={"severity": "error"}) for f in (*found.damaging, *found.absorbed))
    return replace(found, escaped=(*found.escaped, *errors), verdict="nonfinite")


@pytest.mark.parametrize("watch", [_blind, _next_door, _next_to_it])
def test_one_that_names_nothing_or_another_place_misses_them(watch: Callable[..., Findings]) -> None:
    model, feeds = MODELS["transformer"]()
    outcomes = [judge(model, feeds, p, watch) for p in draw(candidates(model, feeds), 0, 4)]
    harmful = [o for o in outcomes if o.bad]
    assert harmful
    assert all(o.miss is not None for o in harmful)


def test_one_that_cries_at_every_birth_is_a_miss() -> None:
    model, feeds = MODELS["transformer"]()
    outcomes = [judge(model, feeds, p, _crying) for p in draw(candidates(model, feeds), 1, 12)]
    harmless = [o for o in outcomes if not o.bad]
    assert harmless
    assert all(o.miss is not None for o in harmless)


def test_plants_stand_in_bodies_too() -> None:
    model, feeds = MODELS["loop"]()
    found = candidates(model, feeds)
    assert {c.path for c in found} >= {(), (("loop", "body"),), (("scan", "body"),)}
    plant = next(p for p in draw(found, 0, 30) if p.candidate.path)
    assert len(planted(model, plant).graph.initializer) == len(model.graph.initializer) + 1
