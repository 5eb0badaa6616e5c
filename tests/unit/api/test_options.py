"""What ``rerun``, ``ranges`` and ``memory`` give, and what they cost the report."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import whynan
from whynan.records import Operand, Report


def gone(x: Tensor) -> Tensor:
    """An operand that a foreach operation overwrites in place: it is not copied before."""
    y = x * 1
    torch._foreach_sqrt_([y])
    return y


def operand(report: Report) -> Operand:
    return report.findings[0].element.operands[0]


def test_an_overwritten_operand_is_unknown_not_guessed() -> None:
    report = whynan.explain(gone, torch.tensor([4.0, -1.0]))
    assert (operand(report).value, operand(report).origin) == (None, "gone")
    assert "rerun=True" in str(report)


def test_a_second_run_recovers_it() -> None:
    report = whynan.explain(gone, torch.tensor([4.0, -1.0]), rerun=True)
    assert (operand(report).value, operand(report).origin) == (-1.0, "rerun")
    assert (report.run.replay.kind, report.run.replay.faithful) == ("rerun", True)


def test_a_second_run_starts_from_the_same_state() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.seen: list[float] = []

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            noise = torch.rand(1)
            self.seen.append(noise.item())
            return gone(x - self.calls) + noise

    torch.manual_seed(0)
    model = Model()
    x = torch.tensor([4.0, 0.0])
    report = whynan.explain(model, x, rerun=True)
    assert report.run.replay.faithful is True
    assert operand(report).value == -1.0
    assert model.calls.item() == 1.0
    assert x.tolist() == [4.0, 0.0]
    first = torch.rand(3)
    torch.manual_seed(0)
    torch.rand(1)
    assert torch.equal(first, torch.rand(3))


def number_of_call(folder: Path) -> int:
    """Which call of its target this is, kept where nothing is put back."""
    with (folder / "calls").open("a") as calls:
        calls.write("1")
    return len((folder / "calls").read_text())


def test_a_second_run_that_differs_is_said_and_not_used(tmp_path: Path) -> None:
    def target(x: Tensor) -> Tensor:
        return gone(x * number_of_call(tmp_path))

    report = whynan.explain(target, torch.tensor([4.0, -1.0]), rerun=True)
    replay = report.run.replay
    assert (replay.kind, replay.faithful) == ("rerun", False)
    assert replay.why
    assert operand(report).value is None
    assert "not faithful" in str(report)


def test_a_second_run_that_raises_is_said_and_not_used(tmp_path: Path) -> None:
    def target(x: Tensor) -> Tensor:
        if number_of_call(tmp_path) == 2:
            raise RuntimeError("only once")
        return gone(x)

    report = whynan.explain(target, torch.tensor([4.0, -1.0]), rerun=True)
    assert report.verdict == "nonfinite"
    assert report.run.replay.faithful is False
    assert "RuntimeError" in report.run.replay.why


def test_ranges_count_every_tensor_that_was_written() -> None:
    def target() -> Tensor:
        x = torch.tensor([0.0, -1.0, 4.0, math.inf])
        return x.sqrt().nan_to_num(5.0, 6.0)

    report = whynan.explain(target, ranges=True)
    by_op = {r.op: r for r in report.ranges}
    sqrt = by_op["aten.sqrt.default"]
    assert (sqrt.n, sqrt.n_nan, sqrt.n_posinf, sqrt.n_neginf, sqrt.n_zero) == (4, 1, 1, 0, 1)
    assert (sqrt.finite_min, sqrt.finite_max) == (0.0, 2.0)
    assert sqrt.site is not None
    assert sqrt.site.code == "x.sqrt()"
    fixed = by_op["aten.nan_to_num.default"]
    assert (fixed.n_nan, fixed.n_posinf, fixed.finite_max) == (0, 0, 6.0)


def test_without_ranges_none_are_recorded() -> None:
    assert whynan.explain(torch.sqrt, torch.ones(2)).ranges == ()


def test_subnormal_numbers_are_counted() -> None:
    report = whynan.explain(lambda: torch.tensor([1e-40, 1.0, 1e-45]) * 1, ranges=True)
    assert {r.n_subnormal for r in report.ranges if r.op.startswith("aten.mul")} == {2}


@pytest.mark.parametrize("memory", [0, 1, "1KB", "1GiB", None])
def test_the_finding_itself_does_not_depend_on_the_budget(memory: int | str | None) -> None:
    def target(x: Tensor) -> Tensor:
        for _ in range(5):
            x = x * 2.0
        return (x - 32.0).log()

    report = whynan.explain(target, torch.ones(1000), memory=memory)
    (finding,) = report.findings
    assert (finding.op, finding.element.index, finding.element.count) == ("aten.log.default", (0,), 1000)
    assert finding.element.operands[0].value == 0.0


def test_a_budget_of_nothing_shortens_the_chain_and_says_so() -> None:
    def target(x: Tensor) -> Tensor:
        a = x * 0.5
        b = a - a.clone()
        return (b * 3).log()

    rich, poor = (whynan.explain(target, torch.ones(1000), memory=m) for m in ("1GiB", 0))
    told = [[c.summary for c in r.findings[0].chain if c.role == "cause"] for r in (rich, poor)]
    assert told == [["0.5 minus 0.5 is 0", "0 times 3 is 0"], ["mul made it 0"]]
    assert "memory=" in str(poor)
    assert "memory=" not in str(rich)


def test_what_an_operation_overwrites_in_place_was_copied_before() -> None:
    report = whynan.explain(lambda x: (x - 2).log_(), torch.ones(3))
    assert (operand(report).value, operand(report).origin) == (-1.0, "window")
    assert operand(whynan.explain(lambda x: (x - 2).log(), torch.ones(3))).origin == "live"
