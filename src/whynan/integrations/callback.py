"""A watch that begins and ends with a framework's training, and asks the framework to stop."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from whynan.config import Options
from whynan.run.options import check_sync
from whynan.run.output.delivery import Display
from whynan.run.pipeline import fold_report
from whynan.run.watch.metrics import sinks_of
from whynan.run.watch.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from whynan.records import Report
    from whynan.run.watch.metrics import MetricSink


class TrainingWatch:
    """The watch of one training at a time; ``report`` is that of the last one.

    `on_nonfinite`: as of ``whynan.watch``; at ``"stop"`` the bad step is left out, and the framework told to stop.
    """

    def __init__(
        self,
        *,
        on_nonfinite: str | None,
        quiet: bool | None,
        metrics: MetricSink | Iterable[MetricSink] | None = None,
    ) -> None:
        self._metrics = sinks_of(metrics)
        self._options = Options.load(on_nonfinite=on_nonfinite, quiet=quiet)
        check_sync(self._options)
        self._training: Training | None = None
        self.report: Report | None = None

    def begin(self, command: str, stop: Callable[[], None]) -> None:
        """Watch from here on; `stop` is called after the first bad step, if that is to end the training."""
        stops = self._options.on_nonfinite == "stop"
        options = replace(self._options, on_nonfinite="skip") if stops else self._options

        display = Display(lambda: sys.stdout, quiet=bool(self._options.quiet))

        def ended(report: Report) -> None:
            display.finish(fold_report(report))
            if stops:
                stop()

        self._training = Training(options, command=command, ended=ended, metrics=self._metrics)
        self._training.replays.audience = display
        self._training.begin()

    def end(self) -> None:
        """Watch no further; a second time does nothing."""
        training, self._training = self._training, None
        if training is not None:
            training.end()
            self.report = fold_report(training.current_report())
