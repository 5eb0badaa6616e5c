"""The callbacks of the frameworks, in small trainings by the real libraries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from whynan.errors import UsageError
from whynan.integrations.lightning import callback as lightning_callback
from whynan.integrations.transformers import callback as transformers_callback
from whynan.records import Report

BAD = 21
"""The entry of the dataset that is all zeros."""


class Rows(Dataset[Any]):
    """Rows of which one may have no direction."""

    def __init__(self, bad: int | None) -> None:
        self.rows = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
        if bad is not None:
            self.rows[bad] = 0.0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return {"x": self.rows[index]}


def directions(x: Tensor) -> Tensor:
    return x / x.square().sum(-1, keepdim=True).sqrt()


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"loss": self.layer(directions(x)).square().mean()}


class Lit(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def training_step(self, batch: Any, index: int) -> Tensor:
        return self.network(batch["x"])["loss"]

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(bad: int | None, tmp_path: Path, **more: Any) -> tuple[Report, int, nn.Module]:
    torch.manual_seed(0)
    watching = lightning_callback(quiet=True, **more)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[watching], default_root_dir=tmp_path,
    )  # fmt: skip
    model = Lit()
    trainer.fit(model, DataLoader(Rows(bad), batch_size=4))
    assert watching.report is not None
    return watching.report, trainer.global_step, model


def train(bad: int | None, tmp_path: Path, **more: Any) -> tuple[Report, int, nn.Module]:
    torch.manual_seed(0)
    watching = transformers_callback(quiet=True, **more)
    model = Network()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=4, num_train_epochs=1, use_cpu=True, report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True, remove_unused_columns=False, seed=0,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Rows(bad), callbacks=[watching])
    trainer.train()
    assert watching.report is not None
    return watching.report, trainer.state.global_step, model


FRAMEWORKS = {"lightning": fit, "transformers": train}


@pytest.mark.full
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_bad_step_is_explained_left_out_and_the_last(name: str, tmp_path: Path) -> None:
    report, steps, model = FRAMEWORKS[name](BAD, tmp_path)
    assert report.verdict == "nonfinite"
    assert (report.run.replay.faithful, report.findings[0].birth) == (True, "invalid")
    site = report.findings[0].site
    assert site is not None
    assert site.code == "x / x.square().sum(-1, keepdim=True).sqrt()"
    assert steps == report.findings[0].step
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """One step."""
        self.rows.append((step, dict(numbers)))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_healthy_training_is_clean_and_a_sink_is_given_the_numbers_of_each_step(name: str, tmp_path: Path) -> None:
    sink = Sink()
    report, steps, _ = FRAMEWORKS[name](None, tmp_path, metrics=sink)
    assert (report.verdict, steps) == ("clean", 8)
    assert report.coverage.notes == ("8 steps watched: the loss and the gradients of each were finite",)
    assert [step for step, _ in sink.rows] == list(range(1, 9))
    for _, numbers in sink.rows:
        assert numbers["whynan/gradient_norm"] > 0


def test_a_callback_fits_whichever_package_is_imported() -> None:
    made = lightning_callback()
    assert isinstance(made, lightning.Callback)


@pytest.mark.parametrize(("make", "packages"), [
    (lightning_callback, ("lightning.pytorch", "pytorch_lightning")), (transformers_callback, ("transformers",)),
])  # fmt: skip
def test_without_the_framework_there_is_none(
    make: Any, packages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in packages:
        monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(UsageError, match="has not imported"):
        make()
