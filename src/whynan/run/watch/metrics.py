"""Metric sinks: the numbers of each watched step, for the program's tracker; some steps or all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from whynan.errors import UsageError
from whynan.records import Step

if TYPE_CHECKING:
    from whynan.training.listeners import Entry


# -- Where the numbers of each watched step go as the training runs: to what the program has for such numbers ----------


@runtime_checkable
class MetricSink(Protocol):
    """What is given the numbers of each watched step; those of TensorBoard, W&B and MLflow are in the integrations."""

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """The numbers of one step, as soon as all that will be known of it is known.

        By name: ``whynan/loss``, ``whynan/gradient_norm``, ``whynan/scale``, and ``whynan/skipped`` (0 or 1); what is
        not known is not there. NaN and Inf are. Those of a second optimizer are ``whynan/optimizer2/loss`` and so on.
        What this raises is warned of once, and the sink is given no more.
        """
        ...


def sinks_of(metrics: MetricSink | Iterable[MetricSink] | None) -> tuple[MetricSink, ...]:
    """The sinks that a user has given; raises ``UsageError`` where one is none."""
    if metrics is None:
        return ()
    several = isinstance(metrics, Iterable) and not isinstance(metrics, MetricSink)
    given = tuple(cast("Iterable[object]", metrics)) if several else (metrics,)
    for one in given:
        if not isinstance(one, MetricSink):
            raise UsageError(
                f"metrics was given {type(one).__name__}, which has no method record(step, numbers)",
                "wrap it: whynan.integrations.tensorboard.sink(writer), .wandb.sink(run) or .mlflow.sink(run_id)",
            )
    return tuple(cast("tuple[MetricSink, ...]", given))


def as_step(entry: Entry) -> Step:
    """One step of the history, as the report has it."""
    return Step(
        step=entry.step,
        loss=entry.loss,
        norm=entry.norm,
        scale=entry.scale,
        skipped=entry.skipped,
    )


class Metrics:
    """Gives the numbers of each step to sinks, none of which can harm the training."""

    def __init__(self, sinks: Iterable[MetricSink]) -> None:
        self._sinks = list(sinks)
        self._optimizers: list[int] = []

    def tell(self, entry: Entry) -> None:
        """The numbers of one step are known."""
        if not self._sinks:
            return
        from whynan.replay.snapshot import restore_generators, rng

        numbers = self._numbers(entry)
        before = rng()
        try:
            for sink in tuple(self._sinks):
                self._record(sink, entry.step, numbers)
        finally:
            # what a sink draws is not missing from the program's random numbers
            restore_generators(before)

    def _numbers(self, entry: Entry) -> dict[str, float]:
        if entry.optimizer not in self._optimizers:
            self._optimizers.append(entry.optimizer)
        number = self._optimizers.index(entry.optimizer) + 1
        under = "whynan" if number == 1 else f"whynan/optimizer{number}"
        known = {
            "loss": entry.loss,
            "gradient_norm": entry.norm,
            "scale": entry.scale,
            "skipped": float(entry.skipped) if entry.skipped or entry.scale is not None else None,
        }
        return {f"{under}/{name}": value for name, value in known.items() if value is not None}

    def _record(self, sink: MetricSink, step: int, numbers: Mapping[str, float]) -> None:
        from whynan.faults import is_program_error, warn
        from whynan.run.region import exception_text

        try:
            sink.record(step, dict(numbers))
        except Exception as error:
            if is_program_error():
                raise
            self._sinks = [one for one in self._sinks if one is not sink]
            warn(
                f"the metric sink {type(sink).__name__} raised {exception_text(error)} at step {step} and is given no "
                "more numbers; your run goes on unharmed"
            )


# -- A metric sink that is given only some of the steps, for a tracker that takes long over each -----------------------


def every_nth(sink: MetricSink, every: int) -> MetricSink:
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
