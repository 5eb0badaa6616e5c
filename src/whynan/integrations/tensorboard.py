"""TensorBoard: ``whynan.watch(optimizer, metrics=whynan.integrations.tensorboard.sink(writer))``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whynan.errors import UsageError
from whynan.run.watch.metrics import MetricSink, every_nth


def sink(writer: Any, *, every: int = 1) -> MetricSink:
    """Writes the numbers of each `every`-th step as scalars of a ``SummaryWriter``, which stays the program's to close.

    Raises ``UsageError`` for what is no writer.
    """
    if not callable(getattr(writer, "add_scalar", None)):
        raise UsageError(
            f"tensorboard.sink() was given {type(writer).__name__}, which has no add_scalar",
            "give it a torch.utils.tensorboard.SummaryWriter (pip install tensorboard)",
        )
    return every_nth(_Scalars(writer), every)


class _Scalars:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
