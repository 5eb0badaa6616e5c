"""What an operator keeps for its own derivative: memory that it leaves unwritten, and -Inf for what cannot be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import whynan
from whynan.capture.torch.operators import KNOWN
from whynan.ops.table import Table

TARGETS = torch.tensor([[1, 2, 3], [1, 1, 0]])


@pytest.fixture(autouse=True)
def _unwritten_memory_is_nan() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    KNOWN.clear()
    yield
    torch.use_deterministic_algorithms(before)
    KNOWN.clear()


def _of_speech(steps: int, *, noise: Tensor | float = 0.0, as_tensors: bool = True) -> Tensor:
    """The loss of two samples of unequal length, and its gradient."""
    torch.manual_seed(0)
    x = (torch.randn(6, 2, 5) + noise).requires_grad_()
    lengths = (torch.tensor([6, steps]), torch.tensor([3, 2])) if as_tensors else ([6, steps], [3, 2])
    loss = F.ctc_loss(x.log_softmax(-1), TARGETS, *lengths)  # type: ignore[arg-type]
    loss.backward()
    return loss


def test_the_memory_is_nan_here() -> None:
    kept = torch.ops.aten._ctc_loss(torch.randn(6, 2, 5).log_softmax(-1), TARGETS, [6, 4], [3, 2])[1]
    assert bool(kept.isnan().any())
    assert bool(kept.isinf().any())


@pytest.mark.parametrize("as_tensors", [True, False])
def test_the_paths_of_a_healthy_loss_are_no_births(as_tensors: bool) -> None:
    report = whynan.explain(_of_speech, 4, as_tensors=as_tensors)
    assert report.verdict == "clean"
    assert report.absorbed_count == 0


@pytest.mark.parametrize("as_tensors", [True, False])
def test_a_target_without_an_alignment_is_the_only_finding(as_tensors: bool) -> None:
    report = whynan.explain(_of_speech, 2, as_tensors=as_tensors)
    (finding,) = report.findings
    assert (finding.rule, finding.element.output, finding.element.index) == ("WN603", 0, (1,))
    assert {r.kind for r in finding.reaches} >= {"gradient"}
    assert report.absorbed_count == 0


def test_a_bad_input_is_carried_on() -> None:
    noise = torch.zeros(6, 2, 5)
    noise[4, 0, 1] = float("nan")
    report = whynan.explain(_of_speech, 4, noise=noise)
    (finding,) = report.findings
    assert finding.birth == "entered"
    assert {r.kind for r in finding.reaches} >= {"gradient"}


def test_a_workspace_that_is_taken_for_a_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "numbers", lambda table, column: {})
    assert whynan.explain(_of_speech, 4).absorbed_count > 0
