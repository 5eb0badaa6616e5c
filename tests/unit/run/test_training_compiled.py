"""A training that is compiled is replayed as it is written; where that is finite, the compiler is the suspect."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd

import whynan
from whynan.records import Report

pytestmark = pytest.mark.usefixtures("without_proofs")
watch = functools.partial(whynan.watch, quiet=True)
BAD = 3


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Rooted(nn.Module):
    """Keeps its argument away from 0 before it takes a root."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        for parameter in self.parameters():
            nn.init.constant_(parameter, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).clamp(min=1e-6).sqrt().mean()


class Bare(Rooted):
    """Does not."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).sqrt().mean()


class Spoilt(Rooted):
    """The same, for a backend of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).clamp(min=1e-6).sqrt().mean().mul(1.0)


def faithful(graph: Any, _: Any) -> Any:
    """A backend that runs what it is given."""
    return graph.forward


def careless(graph: Any, _: Any) -> Any:
    """A backend that leaves out a clamp."""
    for node in list(graph.graph.nodes):
        if "clamp" in str(node.target):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()
    return graph.forward


def _spoiling(graph: Any, _: Any) -> Any:
    def run(*args: Any) -> Any:
        out = graph(*args)
        if any(isinstance(a, Tensor) and a.shape[:1] == (2,) and bool((a < 0).all()) for a in args):
            # as a kernel that is no operator
            out[0].detach().numpy().fill(float("nan"))
        return out

    return run


opaque = aot_autograd(fw_compiler=_spoiling, bw_compiler=lambda graph, _: graph.forward)


def fit(model: Any, optimizer: Any, rows: list[Tensor]) -> None:
    """A training like any other."""
    for x in rows:
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()


def _watched(model: nn.Module, backend: Any) -> Report:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(optimizer) as w:
        fit(torch.compile(model, backend=backend), optimizer, [torch.ones(2, 3)] * (BAD - 1) + [-torch.ones(2, 3) * 5])
    return w.report


def _suspicions(report: Report) -> list[str]:
    return [note for note in report.coverage.notes if "the compiler is the suspect" in note]


def test_a_step_that_is_bad_as_it_is_written_is_explained_and_nobody_suspected() -> None:
    report = _watched(Bare(), faithful)
    assert report.verdict == "nonfinite", report.coverage.notes
    (finding,) = report.findings
    assert (finding.step, finding.op, finding.rule) == (BAD, "aten.sqrt.default", "WN302")
    assert report.run.replay is not None
    assert "run again eagerly from line" in report.run.replay.why
    assert _suspicions(report) == []


@pytest.mark.breadth
def test_a_compiler_that_leaves_something_out_is_the_suspect() -> None:
    report = _watched(Rooted(), careless)
    assert report.verdict == "nonfinite", report.coverage.notes
    assert (report.findings[0].step, report.findings[0].op) == (BAD, "aten.sqrt.default")
    assert report.run.replay is not None
    assert "eagerly" not in report.run.replay.why
    (told,) = _suspicions(report)
    assert told.startswith("replayed eagerly from line ")
    assert "the step is finite" in told
    assert "TORCHDYNAMO_DISABLE=1" in told


@pytest.mark.breadth
def test_a_compiled_step_that_nobody_can_look_into_is_laid_upon_the_compiler() -> None:
    report = _watched(Spoilt(), opaque)
    assert report.run.exit_status.whynan == 1
    (told,) = _suspicions(report)
    assert 'torch.compile(backend="aot_eager")' in told
    # first what is bad, then who made it
    assert report.verdict == "inconclusive", report.findings
    assert report.coverage.notes[:2] == (f"NaN or Inf in the loss at step {BAD}", told)


def test_a_compiled_step_that_is_healthy_is_clean() -> None:
    report = _watched(Rooted(), faithful)
    assert (report.verdict, _suspicions(report)) == ("clean", [])
