"""MLflow: ``whynan.watch(optimizer, metrics=whynan.integrations.mlflow.sink())``."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Mapping
from typing import Any

from whynan.errors import UsageError
from whynan.run.watch.metrics import MetricSink, every_nth


def sink(run_id: str | None = None, *, every: int = 1) -> MetricSink:
    """Logs the numbers of each `every`-th step to a run, by default the active one; none is started for them.

    Raises ``UsageError`` where there is no run, or no MLflow.
    """
    if importlib.util.find_spec("mlflow") is None:
        raise UsageError("mlflow is not installed", "pip install mlflow")
    mlflow: Any = importlib.import_module("mlflow")
    if run_id is None:
        active = mlflow.active_run()
        if active is None:
            raise UsageError("there is no active MLflow run", "call mlflow.start_run() first, or give its id: sink(id)")
        run_id = active.info.run_id
    return every_nth(_Batches(mlflow, run_id), every)


class _Batches:
    def __init__(self, mlflow: Any, run_id: Any) -> None:
        self._client = mlflow.MlflowClient()
        self._metric = mlflow.entities.Metric
        self._run_id = run_id

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(name, value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._run_id, metrics=metrics)
