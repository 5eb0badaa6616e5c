"""``trace``: a region, and nothing of it left behind."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _len_torch_dispatch_stack

import whynan


def test_what_runs_in_the_block_is_seen_and_nothing_else() -> None:
    before = torch.zeros(1).log()
    with whynan.trace() as trace:
        inside = torch.zeros(1) + 1
    after = torch.zeros(1).log()
    assert trace.report.verdict == "clean"
    assert trace.report.coverage.events == 2
    assert bool(before.isinf()), after
    assert inside.item() == 1


def test_a_value_read_in_the_block_is_a_warning_at_most_beside_a_fatal_sink() -> None:
    weight = torch.ones(1, requires_grad=True)
    with whynan.trace() as trace:
        (weight * 2).sum().backward()
        torch.zeros(1).log().tolist()
    (finding,) = trace.report.findings
    assert finding.severity == "warning"
    assert trace.report.verdict == "damaged"


def test_without_any_fatal_sink_what_is_read_is_an_error() -> None:
    with whynan.trace() as trace:
        torch.zeros(1).log().tolist()
    (finding,) = trace.report.findings
    assert finding.severity == "error"
    assert trace.report.verdict == "nonfinite"


def test_every_patch_is_taken_off() -> None:
    def patched() -> list[object]:
        return [
            nn.Module.__dict__["__call__"],
            torch.autograd._engine_run_backward,
            torch.autograd.graph._engine_run_backward,
            torch.save,
            threading.Thread.start,
            *(torch.Tensor.__dict__.get(name) for name in ("tolist", "numpy", "__array__", "__dlpack__")),
        ]

    before = patched()
    with pytest.raises(ValueError, match="mine"), whynan.trace():
        assert patched() != before
        raise ValueError("mine")
    assert patched() == before
    assert _len_torch_dispatch_stack() == 0


def test_a_second_trace_knows_nothing_of_the_first() -> None:
    with whynan.trace():
        bad = torch.full((1,), -1.0).sqrt()
    with whynan.trace() as second:
        (bad + 1).tolist()
    (finding,) = second.report.findings
    assert (finding.birth, finding.op, finding.rule) == ("entered", None, "WN001")


def test_a_second_thread_cannot_trace_meanwhile() -> None:
    refused: list[str] = []

    def work() -> None:
        try:
            with whynan.trace():
                pass
        except whynan.WhynanError as error:
            refused.append(str(error))

    with whynan.trace():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    (text,) = refused
    assert "thread" not in text.partition(":")[0]


def test_the_result_of_traced_code_is_bit_identical() -> None:
    def work() -> list[float]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
        return [v for p in model.parameters() for v in p.flatten().tolist()] + torch.rand(2).tolist()

    bare = work()
    with whynan.trace():
        traced = work()
    assert traced == bare
