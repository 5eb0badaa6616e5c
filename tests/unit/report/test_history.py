"""What the report says of how a training came to its bad step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from whynan.records import Step
from whynan.report.excerpt import history_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from syrupy.assertion import SnapshotAssertion

NAN = float("nan")


def _steps(*, loss: Callable[[int], float], norm: Callable[[int], float]) -> list[Step]:
    before = [Step(step=n, loss=loss(n), norm=norm(n)) for n in range(1, 21)]
    return [*before, Step(step=21, loss=NAN, norm=NAN)]


def _steady(n: int) -> float:
    return 1.0 + n % 3 / 10


def _growing(n: int) -> float:
    return 1.5**n


def _jumping(n: int) -> float:
    return 100.0 if n == 20 else _steady(n)


def _skipped(steps: int) -> list[Step]:
    """A scaler skips the last of ten steps."""
    made = [Step(step=n, loss=_steady(n), norm=_steady(n), scale=65536.0) for n in range(1, 11 - steps)]
    lost = [Step(step=n, loss=_steady(n), scale=2.0 ** (16 - n), skipped=True) for n in range(11 - steps, 11)]
    return [*made, *lost]


CASES = {
    "skipped on end": _skipped(8),
    "skipped once or twice": _skipped(2),
    "steady": _steps(loss=_steady, norm=_steady),
    "the norm grows": _steps(loss=_steady, norm=_growing),
    "the loss jumps": _steps(loss=_jumping, norm=_steady),
    "both grow": _steps(loss=_growing, norm=_growing),
}


@pytest.mark.parametrize("name", CASES)
def test_the_lines(name: str, snapshot: SnapshotAssertion) -> None:
    assert history_lines(CASES[name]) == snapshot


def test_of_two_steps_nothing_is_said() -> None:
    assert history_lines(CASES["both grow"][-2:]) == []


def test_a_training_that_grows_from_the_start_diverges() -> None:
    steps = [Step(step=1, loss=2.0, norm=3.0), Step(step=2, loss=260.0, norm=600.0), Step(step=3, loss=NAN, norm=NAN)]
    assert history_lines(steps)[-1].endswith("fold in the steps before: it diverges")
