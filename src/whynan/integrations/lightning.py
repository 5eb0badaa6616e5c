"""Lightning: ``Trainer(callbacks=[whynan.integrations.lightning.callback()])``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from whynan.errors import UsageError
from whynan.integrations.callback import TrainingWatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.records import Report
    from whynan.run.watch.metrics import MetricSink

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The same library under two names, whose types are unrelated."""


def callback(
    *,
    on_nonfinite: str | None = None,
    quiet: bool | None = None,
    metrics: MetricSink | Iterable[MetricSink] | None = None,
) -> Any:
    """A callback that watches a fit; its ``report`` is there after it, and after a bad step.

    At the first bad step the step is left out and the trainer told to stop; `on_nonfinite` and `metrics` are those of
    ``whynan.watch``.
    Raises ``UsageError`` where the program has imported neither package.
    """
    bases = tuple(sys.modules[name].Callback for name in _PACKAGES if name in sys.modules)
    if not bases:
        raise UsageError(
            "the program has not imported lightning.pytorch or pytorch_lightning",
            "import it before the callback is made",
        )
    kind = type("WhynanCallback", (_Hooks, *bases), {})
    return kind(on_nonfinite=on_nonfinite, quiet=quiet, metrics=metrics)


class _Hooks:
    """What Lightning calls; the hooks of its own class do nothing."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self._watched = TrainingWatch(**given)

    @property
    def report(self) -> Report | None:
        """What was found in the last fit."""
        return self._watched.report

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """A fit begins."""

        def stop() -> None:
            trainer.should_stop = True

        self._watched.begin(f"fit of {type(pl_module).__name__}", stop)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """A fit has ended."""
        del trainer, pl_module
        self._watched.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """A fit ends with an exception."""
        del trainer, pl_module, exception
        self._watched.end()
