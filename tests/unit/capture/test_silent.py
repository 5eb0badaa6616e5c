"""What is looked at for silent damage, and what is not."""

from __future__ import annotations

import pytest
import torch

from whynan.capture.torch import Capture
from whynan.capture.torch.silent.detectors import Detectors
from whynan.faults import InternalError
from whynan.traces import Trace

READS = frozenset(("masks", "bounds", "ranges", "parameters", "gradients"))


def program() -> None:
    """Every kind that one operation does."""
    x = torch.linspace(-2, 2, 20)
    x[x <= 1e-4] = 1e-4
    torch.zeros(3).half() + 1e-8
    torch.full((2,), 1e6).to(torch.float8_e4m3fn)
    w = torch.ones(4, dtype=torch.bfloat16, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1e-3)
    w.sum().backward()
    optimizer.step()
    v = torch.ones(4, requires_grad=True)
    (v * 1e12).sum().backward()
    torch.optim.SGD([v], lr=1e-20).step()


def seen(reads: frozenset[str]) -> Trace:
    """The trace of the program."""
    with Capture(reads=reads) as capture:
        program()
    assert capture.trace is not None
    return capture.trace


@pytest.mark.parametrize(
    ("reading", "kind"),
    [
        ("masks", "overwritten"),
        ("bounds", "vanished"),
        ("ranges", "saturated"),
        ("parameters", "stalled"),
        ("gradients", "steep"),
    ],
)
def test_each_reading_finds_its_kind(reading: str, kind: str) -> None:
    assert [s.damage.kind for s in seen(frozenset((reading,))).silent] == [kind]


def test_all_of_them_in_the_order_of_time() -> None:
    found = seen(READS).silent
    assert [s.damage.kind for s in found] == ["overwritten", "vanished", "saturated", "stalled", "steep"]
    assert [s.event.ordinal for s in found] == sorted(s.event.ordinal for s in found)


def test_nothing_is_looked_at_that_no_rule_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("it was looked at")

    monkeypatch.setattr(Detectors, "check_event", refuse)
    assert seen(frozenset()).silent == []
    with pytest.raises(InternalError):
        seen(frozenset(("bounds",)))


def test_a_place_is_counted_and_not_told_again() -> None:
    with Capture(reads=READS) as capture:
        for _ in range(5):
            torch.zeros(3).half().add(1e-8)
    assert capture.trace is not None
    assert [s.occurrences for s in capture.trace.silent] == [5]


def test_a_forward_that_a_checkpoint_runs_again_is_told_once() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        return (x * x + 1e-8).float()

    x = torch.zeros(3, dtype=torch.float16, requires_grad=True)
    with Capture(reads=READS) as capture:
        torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False).sum().backward()
    assert capture.trace is not None
    assert [s.occurrences for s in capture.trace.silent] == [1]


def test_without_an_optimizer_there_is_no_step() -> None:
    with Capture(reads=READS) as capture:
        torch.zeros(3).half().add(1e-8)
    assert capture.trace is not None
    assert [s.event.step for s in capture.trace.silent] == [None]
