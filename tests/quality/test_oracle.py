"""The exact values are those of PyTorch's and ONNX's own samples, value and gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.quality.conformance import all_cases, sample
from tests.quality.oracle_sweep import of_one_node, swept, swept_node, torch_operators
from whynan.verify.oracle import functions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.quality.conftest import Tally
    from tests.quality.oracle_sweep import Swept

CHUNKS = 16
TORCH = "the oracle beside torch's samples in float64, value and gradient"
NODES = "the oracle beside onnx's node cases"
SAMPLED = "atan2 cumsum div exp index_select log_softmax logsumexp matmul pow sigmoid softmax sqrt std where"


def _judged(found: Iterable[Swept], what: str, tally: Tally) -> list[str]:
    wrong: list[str] = []
    for one in found:
        tally.count(what, one.agreed, one.agreed + len(one.wrong), "samples")
        if one.unknown and not one.agreed:
            tally.listed(f"{what}: not known", f"{one.name}: {', '.join(one.unknown)}")
        wrong += one.wrong
    return wrong


def test_a_sample_of_torchs_operators_agrees(tally: Tally) -> None:
    found = [swept(name) for name in SAMPLED.split()]
    assert not _judged(found, f"{TORCH} (sample)", tally)
    assert all(one.agreed for one in found)


@pytest.mark.full
def test_a_sample_of_onnxs_operators_agrees(tally: Tally) -> None:
    found = [swept_node(name, cases) for name, cases in of_one_node(sample()).items()]
    assert not _judged(found, f"{NODES} (sample)", tally)
    assert sum(one.agreed for one in found) > 20


@pytest.mark.full
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_operator_of_torch_agrees(chunk: int, tally: Tally) -> None:
    names = sorted(torch_operators())[chunk::CHUNKS]
    assert not _judged([swept(name) for name in names], TORCH, tally)


@pytest.mark.full
def test_every_operator_of_onnx_agrees(tally: Tally) -> None:
    found = [swept_node(name, cases) for name, cases in sorted(of_one_node(all_cases()).items())]
    assert not _judged(found, NODES, tally)


# -- what each of these checks would not let pass -------------------------------------------------------------------


def test_a_wrong_derivative_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not swept("sigmoid").wrong
    right = functions._FACTORS["sigmoid"]
    monkeypatch.setitem(functions._FACTORS, "sigmoid", lambda f, x, y: f.e.neg(right(f, x, y)))
    seen = swept("sigmoid").wrong
    assert seen
    assert all("gradient of" in miss for miss in seen)


def test_a_wrong_value_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions.Functions, "mul", functions.Functions.add)
    assert swept("mul").wrong
