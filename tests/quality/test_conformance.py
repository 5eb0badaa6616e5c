"""What a bare engine runs, whynan runs: the very bits come out, and every value is counted right."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.quality.conformance import Case, Held, all_cases, holds, holds_in_reference, sample, stored_cases
from whynan.capture.onnx.engine import EngineSettings, Outcome, run
from whynan.capture.onnx.execution import Observer, RunError, Value

if TYPE_CHECKING:
    from tests.quality.conftest import Tally

CHUNKS = 24
RUNTIME = "ONNX Runtime, backend cases: outputs, nodes alone and counters equal"
REFERENCE = "ONNX reference, backend cases: outputs, nodes alone and counters equal"


def _judged(found: Iterable[tuple[Case, Held]], what: str, tally: Tally) -> list[str]:
    broken: list[str] = []
    for case, held in found:
        if held.refused and not held.misses:
            tally.count(f"{what}: refused by the bare engine too", 1, 1)
            continue
        tally.count(what, not held.misses, 1, "cases")
        if held.emulated:
            tally.count(f"{what}: float16 kept in float32, outputs and nodes only", 1, 1)
        tally.count(f"{what}: values", held.values, held.values)
        tally.count(f"{what}: nodes", held.nodes, held.nodes)
        for miss in held.misses:
            tally.listed(what, f"{case.name}: {miss}")
            broken.append(f"{case.name}: {miss}")
    return broken


def test_a_sample_of_the_cases_holds(tmp_path: Path, tally: Tally) -> None:
    assert len(sample()) > 50
    assert not _judged([(case, holds(case, tmp_path)) for case in sample()], f"{RUNTIME} (sample)", tally)


def test_a_sample_of_the_cases_holds_in_the_reference(tmp_path: Path, tally: Tally) -> None:
    assert not _judged([(c, holds_in_reference(c, tmp_path)) for c in sample()], f"{REFERENCE} (sample)", tally)


def test_a_sample_of_the_stored_models_holds(tmp_path: Path, tally: Tally) -> None:
    taken = [case for case in stored_cases() if case.name.startswith(("simple/", "light/light_squeezenet"))]
    assert len(taken) > 20
    assert not _judged([(case, holds(case, tmp_path)) for case in taken], f"{RUNTIME} (sample)", tally)


@pytest.mark.full
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_case_holds(tmp_path: Path, tally: Tally, chunk: int) -> None:
    cases = all_cases()[chunk::CHUNKS]
    assert not _judged(((case, holds(case, tmp_path)) for case in cases), RUNTIME, tally)


@pytest.mark.full
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_case_holds_in_the_reference(tmp_path: Path, tally: Tally, chunk: int) -> None:
    cases = [case for case in all_cases() if not case.name.startswith("light/")][chunk::CHUNKS]
    assert not _judged(((case, holds_in_reference(case, tmp_path)) for case in cases), REFERENCE, tally)


# -- what each of these checks would not let pass -------------------------------------------------------------------


class _Between:
    """An observer that hears of one value with one element wrong."""

    def __init__(self, observer: Any) -> None:
        self._observer = observer
        self._done = False

    def on_node(self, node: Any, inputs: Any, outputs: Any) -> None:
        changed = list(outputs)
        for i, value in enumerate(changed):
            if not self._done and isinstance(value, np.ndarray) and value.dtype == np.float32 and value.size:
                changed[i] = value.copy()
                changed[i].reshape(-1)[0] = np.nan
                self._done = True
        self._observer.on_node(node, inputs, changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)


def _one_bit_off(settings: EngineSettings, feeds: Mapping[str, Value], observer: Observer) -> Outcome:
    outcome = run(settings, feeds, observer)
    outputs = {name: np.array(value) for name, value in outcome.outputs.items()}
    next(iter(outputs.values())).reshape(-1).view(np.uint8)[0] ^= 1
    return dataclasses.replace(outcome, outputs=outputs)


def _one_value_off(settings: EngineSettings, feeds: Mapping[str, Value], observer: Observer) -> Outcome:
    between: Any = _Between(observer)
    return run(settings, feeds, between)


def _one_value_untold(settings: EngineSettings, feeds: Mapping[str, Value], observer: Observer) -> Outcome:
    outcome = run(settings, feeds, observer)
    told: Any = observer
    told.values.clear()
    return outcome


def _refusing(settings: EngineSettings, feeds: Mapping[str, Value], observer: Observer) -> Outcome:
    raise RunError("no", 0)


@pytest.fixture
def healthy() -> Case:
    return next(case for case in sample() if case.name == "test_add")


DEFECTS = [
    (_one_bit_off, "other bits"),
    (_one_value_off, "where the"),
    (_one_value_off, "gives other bits alone"),
    (_refusing, "refused"),
]


@pytest.mark.parametrize(("defect", "said"), [*DEFECTS, (_one_value_untold, "was not told of")])
def test_a_defect_is_caught(tmp_path: Path, healthy: Case, defect: Any, said: str) -> None:
    assert not holds(healthy, tmp_path).misses
    assert any(said in miss for miss in holds(healthy, tmp_path, defect).misses)


@pytest.mark.parametrize(("defect", "said"), DEFECTS)
def test_a_defect_in_the_reference_is_caught(tmp_path: Path, healthy: Case, defect: Any, said: str) -> None:
    assert not holds_in_reference(healthy, tmp_path).misses
    assert any(said in miss for miss in holds_in_reference(healthy, tmp_path, defect).misses)


def test_running_what_the_bare_engine_refuses_is_caught(tmp_path: Path, healthy: Case) -> None:
    def ran(settings: EngineSettings, feeds: Mapping[str, Value], observer: Observer) -> Outcome:
        return run(dataclasses.replace(settings, path=str(tmp_path / "good.onnx")), healthy.feeds, observer)

    (tmp_path / "good.onnx").write_bytes(healthy.proto.SerializeToString())
    wrong = Case("wrong", healthy.proto, {})
    assert holds(wrong, tmp_path, ran).misses == ["runs what a bare session refuses"]
    assert holds_in_reference(wrong, tmp_path, ran).misses == ["runs what the evaluator refuses"]
