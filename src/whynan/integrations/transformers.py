"""Transformers: ``Trainer(..., callbacks=[whynan.integrations.transformers.callback()])``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from whynan.errors import UsageError
from whynan.integrations.callback import TrainingWatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.records import Report
    from whynan.run.watch.metrics import MetricSink


def callback(
    *,
    on_nonfinite: str | None = None,
    quiet: bool | None = None,
    metrics: MetricSink | Iterable[MetricSink] | None = None,
) -> Any:
    """A callback that watches a training; its ``report`` is there after it, and after a bad step.

    At the first bad step the step is left out and the trainer told to stop; `on_nonfinite` and `metrics` are those of
    ``whynan.watch``.
    Raises ``UsageError`` where the program has not imported transformers.
    """
    if "transformers" not in sys.modules:
        raise UsageError("the program has not imported transformers", "import it before the callback is made")
    kind = type("WhynanCallback", (_Hooks, sys.modules["transformers"].TrainerCallback), {})
    return kind(on_nonfinite=on_nonfinite, quiet=quiet, metrics=metrics)


class _Hooks:
    """What the Trainer calls; the hooks of its own class do nothing."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self._watched = TrainingWatch(**given)
        self._stops = False

    @property
    def report(self) -> Report | None:
        """What was found in the last training."""
        return self._watched.report

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """A training begins."""
        del args, state, control
        self._stops = False

        def stop() -> None:
            self._stops = True

        self._watched.begin(f"train of {type(known.get('model')).__name__}", stop)

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """A step has been made, or left out: the control of the training is read after this."""
        del args, state, known
        if self._stops:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """A training has ended."""
        del args, state, control, known
        self._watched.end()
