"""W&B: ``whynan.watch(optimizer, metrics=whynan.integrations.wandb.sink())``."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Mapping
from typing import Any

from whynan.errors import UsageError
from whynan.run.watch.metrics import MetricSink, every_nth


def sink(run: Any = None, *, every: int = 1, commit: bool = False) -> MetricSink:
    """Logs the numbers of each `every`-th step to a run of the program's, by default the active one.

    They join the row that the program logs next, over an axis of their own, so that its step counter does not move:
    where it logs each tenth step, each tenth is kept. `commit`: each is a row of its own, for a program that logs
    nothing itself. Raises ``UsageError`` where there is no run.
    """
    if run is None:
        run = getattr(sys.modules.get("wandb"), "run", None)
    if run is None:
        if importlib.util.find_spec("wandb") is None:
            raise UsageError("wandb is not installed", "pip install wandb")
        raise UsageError("there is no active W&B run", "call wandb.init() first, or give what it returns: sink(run)")
    if not callable(getattr(run, "log", None)) or not callable(getattr(run, "define_metric", None)):
        raise UsageError(
            f"wandb.sink() was given {type(run).__name__}, which is no run", "give what wandb.init() returns"
        )
    return every_nth(_Rows(run, commit=commit), every)


class _Rows:
    def __init__(self, run: Any, *, commit: bool) -> None:
        self._run = run
        self._commit = commit
        self._names: dict[str, dict[str, float]] = {}
        """Of each optimizer: the names it has had numbers for."""

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        under = next(iter(numbers), "whynan/").rpartition("/")[0]
        names = self._names.setdefault(under, {})
        axis = f"{under}/step"
        for name in numbers.keys() - names.keys():
            self._run.define_metric(name, step_metric=axis)
            names[name] = math.nan
        # a number that is not known now is not to be that of an earlier step in the same row
        self._run.log({**names, **numbers, axis: step}, commit=self._commit)
