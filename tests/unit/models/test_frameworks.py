"""Checkpoints as Lightning and transformers write them."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from whynan.models.checkpoint.postmortem import read_checkpoints
from whynan.records.checkpoint import Checkpoint

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Neither framework writes about itself."""
    names = ("lightning.pytorch", "lightning.fabric", "transformers")
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


class Width:
    """A setting of a class of the user's own."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.scale = torch.tensor([1.0])


def lightning_run(folder: Path, poison: int) -> list[str]:
    """Three checkpoints of a training whose input is bad from one step on."""
    import lightning
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    class Net(lightning.LightningModule):
        def __init__(self, width: Width, rate: float = 1e-2) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = nn.Linear(4, width.value)

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            x = batch[0] * (math.nan if self.global_step >= poison else 1.0)
            loss = self.layer(x).pow(2).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=self.hparams["rate"])

    # a score that is never compared keeps the Inf that it began with
    stopping = EarlyStopping("loss", check_on_train_epoch_end=False)
    saving = ModelCheckpoint(dirpath=folder, every_n_train_steps=2, save_top_k=-1)
    trainer = lightning.Trainer(
        max_steps=6, logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
        callbacks=[stopping, saving], default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(Net(Width(3)), DataLoader(TensorDataset(torch.ones(12, 4)), batch_size=1))
    return [str(path) for path in folder.glob("*.ckpt")]


def test_a_training_with_lightning(tmp_path: Path) -> None:
    found = read_checkpoints(lightning_run(tmp_path, poison=3))
    assert found.order is not None
    assert (found.order.by, found.order.key) == ("step", "global_step")
    assert [held.steps["global_step"] for held in found.checkpoints] == [2, 4, 6]
    assert (found.first_bad, found.last_good) == (1, 0)
    assert {stored.name for stored in found.checkpoints[1].tensors if stored.bad} == {
        f"{place}{name}"
        for place, names in {
            "state_dict.layer.": ("weight", "bias"),
            "optimizer_states[0].state[0].": ("exp_avg", "exp_avg_sq"),
            "optimizer_states[0].state[1].": ("exp_avg", "exp_avg_sq"),
        }.items()
        for name in names
    }


def test_a_healthy_training_with_lightning_is_clean_though_its_callbacks_hold_inf(tmp_path: Path) -> None:
    found = read_checkpoints(lightning_run(tmp_path, poison=99))
    assert found.verdict == "clean"
    held = found.checkpoints[-1]
    assert [stored.literal for stored in held.tensors if stored.n_posinf] == ["a start value"] * 2
    assert held.unloaded == (f"{Width.__module__}.Width",)
    assert "hyper_parameters.width.scale" in {stored.name for stored in held.tensors}


def transformers_run(folder: Path, poison: int) -> list[str]:
    """Three folders of transformers' trainer, whose model is bad from one step on."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Poison(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step == poison:
                with torch.no_grad():
                    model.transformer.h[0].mlp.c_fc.weight[0, :3] = math.nan

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8))
    sample = {"input_ids": torch.arange(8) % 16, "labels": torch.arange(8) % 16}
    arguments = TrainingArguments(
        str(folder), max_steps=6, save_steps=2, logging_steps=1, per_device_train_batch_size=2, report_to=[],
        use_cpu=True, disable_tqdm=True, logging_nan_inf_filter=False, seed=0,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=[sample] * 16, callbacks=[Poison()]).train()
    return [str(path) for path in folder.glob("checkpoint-*")]


def bad_files(held: Checkpoint) -> set[str | None]:
    return {stored.file for stored in held.tensors if stored.bad}


def test_a_training_with_transformers(tmp_path: Path) -> None:
    found = read_checkpoints(transformers_run(tmp_path, poison=3))
    assert [held.name for held in found.checkpoints] == ["checkpoint-2/", "checkpoint-4/", "checkpoint-6/"]
    assert [held.steps["global_step"] for held in found.checkpoints] == [2, 4, 6]
    assert (found.first_bad, found.last_good) == (1, 0)
    assert bad_files(found.checkpoints[1]) == {"model.safetensors", "optimizer.pt"}
    # the bad weight is written after step 3, and logged with the step after it
    assert {(entry.name, entry.step) for entry in found.checkpoints[1].logged} == {("loss", 4), ("grad_norm", 4)}


def test_a_healthy_training_with_transformers_is_clean(tmp_path: Path) -> None:
    found = read_checkpoints(transformers_run(tmp_path, poison=99))
    assert found.verdict == "clean"
    assert all(not held.notes and not held.unloaded for held in found.checkpoints)
    assert all(held.n_tensors > 20 for held in found.checkpoints)


@pytest.mark.parametrize("bad", [True, False])
def test_a_model_that_transformers_saved_in_shards(tmp_path: Path, bad: bool) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=16, n_positions=8)).bfloat16()
    if bad:
        model.transformer.ln_f.weight.data[2] = math.inf
    model.save_pretrained(tmp_path, max_shard_size="3KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    for path in (tmp_path, tmp_path / "model.safetensors.index.json"):
        (held,) = read_checkpoints([str(path)]).checkpoints
        assert [(s.name, s.dtype, s.n_posinf) for s in held.tensors if s.bad] == (
            [("transformer.ln_f.weight", "bfloat16", 1)] if bad else []
        )
        assert {stored.name for stored in held.tensors} == set(model.state_dict()) - {"lm_head.weight"}
