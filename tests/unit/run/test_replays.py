"""Which way is gone first where a step is run again many times."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from whynan.run.watch.replays import _shortest  # pyright: ignore[reportPrivateUsage]


def way(seconds: float) -> Any:
    return SimpleNamespace(differentiates_as_then=False, began=time.monotonic() - seconds)


def test_what_runs_the_most_is_gone_first_unless_that_takes_long() -> None:
    most, less = way(2.0), way(0.1)
    assert _shortest([most, less]) == [most, less]
    longest, long, short = way(600.0), way(60.0), way(1.0)
    assert _shortest([longest, long, short]) == [short, long, longest]
