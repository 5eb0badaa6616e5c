"""A metric sink that is given only some of the steps, for a tracker that takes long over each."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.session.metrics import MetricSink


def thinned(sink: MetricSink, every: int) -> MetricSink:
    """Hands on the numbers of each so many steps; raises ``UsageError`` for less than 1."""
    if every < 1:
        raise UsageError(f"every is {every}", "give from 1 on: 1 is each step, 10 the steps 10, 20, 30")
    return sink if every == 1 else _Thinned(sink, every)


class _Thinned:
    def __init__(self, sink: MetricSink, every: int) -> None:
        self._sink = sink
        self._every = every

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        if step % self._every == 0:
            self._sink.record(step, numbers)
