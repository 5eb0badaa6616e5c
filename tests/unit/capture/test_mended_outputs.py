"""What a module gives without a backward: a sink, unless the program mends it before it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.capture.seen import only, sinks, traced


class Log(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.log()


def overwritten(y: Tensor) -> Tensor:
    y[y.isinf()] = 0
    return y


MENDS: dict[str, Callable[[Tensor], Any]] = {
    "clamped": lambda y: y.clamp(min=-5.0),
    "replaced": lambda y: torch.where(y.isinf(), 0.0, y),
    "filled": lambda y: y.masked_fill(y.isinf(), 0.0).sum().item(),
    "in place": lambda y: y.nan_to_num_(neginf=0.0).tolist(),
    "overwritten": lambda y: overwritten(y).tolist(),
    "left out": lambda y: y[y.isfinite()].mean().item(),
    "exponentiated": lambda y: y.exp().sum().item(),
    "the greatest of": lambda y: y.max().item(),
    "mended later": lambda y: (y * 2).nan_to_num(neginf=-5.0).tolist(),
}
USES: dict[str, Callable[[Tensor], Any]] = {
    "dropped": lambda y: None,
    "read": lambda y: y.tolist(),
    "averaged": lambda y: y.mean().item(),
    "asked about": lambda y: bool(y.isinf().any()),
    "another part of it read": lambda y: y[1:].sum().item(),
    "its shape read": lambda y: torch.zeros_like(y).sum().item(),
    "mended for the log": lambda y: (y.nan_to_num(neginf=0.0).sum().item(), y.tolist()),
    "ranked": lambda y: (y * 0).argmax().item(),
}


def program(use: Callable[[Tensor], Any], calls: int = 2) -> Callable[[], object]:
    def work() -> None:
        model = Log()
        with torch.no_grad():
            for call in range(calls):
                use(model(torch.tensor([float(call > 0), 2.0, 3.0])))

    return work


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("name", MENDS)
def test_what_is_mended_has_done_no_harm(name: str, calls: int) -> None:
    report = traced(program(MENDS[name], calls))
    assert (report.verdict, report.findings, report.absorbed_count) == ("clean", (), 1)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("name", USES)
def test_what_is_not_mended_is_an_output(name: str, calls: int) -> None:
    report = traced(program(USES[name], calls))
    finding = next(f for f in report.findings if f.op == "aten.log.default")
    assert finding.severity == "error"
    assert ("output", "output") in sinks(finding)


def test_of_two_outputs_each_is_mended_for_itself() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x.log(), x.reciprocal()

    def work() -> None:
        with torch.no_grad():
            first, _ = Both()(torch.zeros(1))
            first.clamp(min=-5.0)

    finding = only(traced(work))
    assert (finding.op, sinks(finding)) == ("aten.reciprocal.default", {("output", "output[1]")})


def test_a_mended_output_before_a_step_is_none_after_it() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work() -> None:
        for _ in range(2):
            with torch.no_grad():
                scale = Log()(torch.zeros(1)).clamp(min=-5.0)
            (weight * scale).sum().backward()
            optimizer.step()

    assert traced(work).verdict == "clean"


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_collected_over_calls_may_be_mended_at_the_end(kept: bool) -> None:
    def work() -> None:
        model = Log()
        with torch.no_grad():
            found = torch.stack([model(torch.tensor([float(call), 2.0])) for call in range(3)])
            if kept:
                found = torch.where(found.isinf(), 0.0, found)
        found.sum().item()

    report = traced(work)
    assert report.verdict == ("clean" if kept else "nonfinite")


def test_what_one_call_gave_is_mended_in_the_next() -> None:
    class Whole(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.nan_to_num(neginf=-5.0)

    def work() -> None:
        with torch.no_grad():
            Whole()(Log()(torch.zeros(1)) * 2).item()

    assert traced(work).verdict == "clean"


def test_a_detached_output_is_mended_after_the_step() -> None:
    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x * self.weight, torch.stack([x.mean(), x[:0].mean()])

    model = Routed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def work() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            out, load = model(torch.ones(2))
            out.sum().backward()
            optimizer.step()
            load.nanmean().item()

    assert traced(work).verdict == "clean"


def test_of_two_outputs_that_are_bad_by_one_birth_each_is_mended_for_itself() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = x.log()
            return hidden, hidden * 2

    def work() -> None:
        with torch.no_grad():
            hidden, scores = Both()(torch.zeros(1))
            hidden.nan_to_num(neginf=0.0)
            del scores

    assert sinks(only(traced(work))) == {("output", "output[1]")}


def test_a_wrong_finite_output_is_not_waited_with() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x.square().mean().rsqrt()

    def work() -> None:
        with torch.no_grad():
            Scaled()(torch.full((2,), 300.0, dtype=torch.float16)).clamp(min=-1.0)

    report = traced(work)
    assert (report.verdict, report.findings) == ("damaged", ())
