"""W&B: ``whynan.watch(optimizer, metrics=whynan.integrations.wandb.sink())``."""

# pyright: strict

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any, Final

from whynan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.session.metrics import MetricSink

_AXIS: Final = "whynan/step"


def sink(run: Any = None, *, commit: bool = False) -> MetricSink:
    """Logs the numbers of each step to a run of the program's, by default the active one, over an axis of their own.

    They join the row that the program logs next, so that its step counter does not move: where it logs every tenth
    step, every tenth is kept. `commit`: each step is a row of its own, for a program that logs nothing itself.
    Raises ``UsageError`` where there is no run.
    """
    if run is None:
        run = getattr(sys.modules.get("wandb"), "run", None)
    if run is None:
        if importlib.util.find_spec("wandb") is None:
            raise UsageError("wandb is not installed", "pip install wandb")
        raise UsageError("there is no active W&B run", "call wandb.init() first, or give its run: sink(run)")
    if not callable(getattr(run, "log", None)) or not callable(getattr(run, "define_metric", None)):
        raise UsageError(
            f"wandb.sink() was given {type(run).__name__}, which is no run", "give what wandb.init() returns"
        )
    run.define_metric(_AXIS, hidden=True)
    run.define_metric("whynan/*", step_metric=_AXIS)
    return _Rows(run, commit=commit)


class _Rows:
    def __init__(self, run: Any, *, commit: bool) -> None:
        self._run = run
        self._commit = commit

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({**numbers, _AXIS: step}, commit=self._commit)
