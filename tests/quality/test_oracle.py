"""The exact values are those of PyTorch's and ONNX's own samples, value and gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.quality.oracle_sweep import node_cases, swept, swept_node, torch_operators
from whynan.verify.oracle import table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.quality.conftest import Tally
    from tests.quality.oracle_sweep import Swept

CHUNKS = 16
TORCH = "the oracle beside torch's samples in float64, value and gradient"
NODES = "the oracle beside onnx's node cases"
SAMPLED = "atan2 cumsum div exp index_select log_softmax logsumexp matmul pow sigmoid softmax sqrt std where"
SAMPLED_NODES = "Acos Div Exp Log LogSoftmax Pow ReduceLogSumExp ReduceMean Sigmoid Softmax Softplus Sqrt Where"


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


def test_a_sample_of_onnxs_operators_agrees(tally: Tally) -> None:
    found = [swept_node(name) for name in SAMPLED_NODES.split()]
    assert not _judged(found, f"{NODES} (sample)", tally)
    assert all(one.agreed for one in found)


@pytest.mark.full
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_operator_of_torch_agrees(chunk: int, tally: Tally) -> None:
    names = sorted(torch_operators())[chunk::CHUNKS]
    assert not _judged([swept(name) for name in names], TORCH, tally)


@pytest.mark.full
def test_every_operator_of_onnx_agrees(tally: Tally) -> None:
    assert not _judged([swept_node(name) for name in sorted(node_cases())], NODES, tally)
