"""The same steps in Lightning's own loop, which runs on a thread and makes one whenever it is asked to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.programs import Step

_fits: dict[int, Fit] = {}


class Asked(IterableDataset[Tensor]):
    """The batch, once for each time that somebody asks for a step."""

    def __init__(self, batch: Tensor) -> None:
        self.batch = batch
        self.asked = threading.Semaphore(0)
        self.over = False

    def __len__(self) -> int:
        # of data without a length Lightning takes one batch ahead
        return 1 << 30

    def __iter__(self) -> Iterator[Tensor]:
        while self.asked.acquire() and not self.over:
            yield self.batch


class Fit:
    """One `Trainer.fit`; a call makes a step, and raises what has ended the fit."""

    def __init__(self, step: Step, callbacks: list[Any], *, detect_anomaly: bool) -> None:
        import lightning

        made = threading.Semaphore(0)

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.model = step.model

            def training_step(self, batch: Tensor) -> Tensor:
                return self.model(batch)

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return step.optimizer

            def on_train_batch_end(self, *_: object) -> None:
                made.release()

        self._rows = Asked(step.batch)
        self._made = made
        self._error: BaseException | None = None
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=1,
            callbacks=callbacks,
            detect_anomaly=detect_anomaly,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        self._thread = threading.Thread(target=self._run, args=(trainer, Module()))
        self._thread.start()

    def __call__(self) -> None:
        self._rows.asked.release()
        self._made.acquire()
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """No step follows."""
        self._rows.over = True
        self._rows.asked.release()
        self._thread.join()

    def _run(self, trainer: Any, module: Any) -> None:
        torch.set_num_threads(1)
        try:
            trainer.fit(module, DataLoader(self._rows, batch_size=None))
        except BaseException as error:
            self._error = error
        self._made.release()


def fit(*, detect_anomaly: bool = False, callback: Callable[[], Any] | None = None) -> Any:
    """A way to look: all steps in one fit; what it gives is the callback."""

    @contextmanager
    def look(step: Step) -> Iterator[Any]:
        import lightning.pytorch

        del lightning
        made = None if callback is None else callback()
        running = Fit(step, [] if made is None else [made], detect_anomaly=detect_anomaly)
        _fits[id(step)] = running
        try:
            yield made
        finally:
            running.end()

    return look


def run(step: Step) -> None:
    """One step of its fit."""
    _fits[id(step)]()
