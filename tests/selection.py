"""Which tests are in the short run: those of what a module does, in this process and without a proof of fixes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

SHORT_PROFILE = "short"
SEEDS = 20
"""The random examples of a property, and the seeds of a test, in the short run."""

LEFT_OUT = ("process", "proof", "quality", "breadth")
"""The marks of the tests that `make test` leaves to `make test-rest`."""

PROVED = ("verified", "guarded", "distorting", "rejected")
"""What a proof says of a fix."""


def examples(number: int) -> int:
    """The random examples of a property: as many as said, but in the short run."""
    return min(number, SEEDS) if settings.get_current_profile_name() == SHORT_PROFILE else number


def sampled(values: Iterable[Any], each: int, mark: pytest.MarkDecorator = pytest.mark.full) -> list[Any]:
    """All of them as parameters; but for each n-th, of the full check alone, or of what the mark says."""
    return [v if n % each == 0 else pytest.param(v, marks=mark) for n, v in enumerate(values)]


def spread(values: Iterable[Any], each: int) -> list[Any]:
    """All of them as parameters; but for each n-th, of `make test-rest`."""
    return sampled(values, each, pytest.mark.breadth)


def run_of(item: pytest.Item) -> str:
    """The run that a test is in: short, rest or full."""
    if item.get_closest_marker("full"):
        return "full"
    return "short" if item.get_closest_marker("smoke") or not any(map(item.get_closest_marker, LEFT_OUT)) else "rest"


def mark_breadth(items: Sequence[pytest.Item]) -> None:
    """Mark the seeds after the first, and the dtypes beside float32, of a test that has several."""
    for _, group in groupby(items, _function):
        cases = [case for case in group if not has_snapshot(case)]
        dtypes = [case for case in cases if "dtype" in _parameters(case)]
        if any(_is_float32(case) for case in dtypes):
            _mark(case for case in dtypes if not _is_float32(case))
        _mark(case for case in cases if _seed(case) >= SEEDS)


def mark_qualities(items: Iterable[pytest.Item]) -> None:
    """Mark the tests of what is promised of many programs."""
    for item in items:
        if item.nodeid.startswith("tests/quality/"):
            item.add_marker(pytest.mark.quality)


def refuse_split_snapshots(items: Sequence[pytest.Item]) -> None:
    """A test whose cases are in several runs can have no snapshot: the run without a case finds its own unused."""
    runs: dict[str, str] = {}
    for item in filter(has_snapshot, items):
        if runs.setdefault(_function(item), run_of(item)) != run_of(item):
            raise pytest.UsageError(f"{item.nodeid} has a snapshot and is in another run than its other cases")


def starts_python(executable: Any, arguments: Any) -> bool:
    """Whether a command is a Python interpreter, or a program that is installed beside this one."""
    first = executable or (arguments if isinstance(arguments, str | bytes | os.PathLike) else arguments[0])
    path = Path(os.fsdecode(first))
    return path.name.startswith("python") or path.parent == Path(sys.executable).parent


def has_snapshot(item: pytest.Item) -> bool:
    return "snapshot" in getattr(item, "fixturenames", ())


def _mark(items: Iterable[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.breadth)


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})


def _is_float32(item: pytest.Item) -> bool:
    return "float32" in str(_parameters(item)["dtype"])


def _seed(item: pytest.Item) -> int:
    seed = _parameters(item).get("seed")
    return seed if isinstance(seed, int) else 0
