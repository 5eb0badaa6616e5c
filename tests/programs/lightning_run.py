"""Lightning drives the training, with a logger, a callback and a checkpoint."""

import logging
import os
import sys
import warnings

warnings.simplefilter("ignore")
import lightning as L
import torch

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.save_hyperparameters()

    def training_step(self, batch, index):
        loss = (self.layer(batch[0]) - batch[1]).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val", self.layer(batch[0]).mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Telling(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        print(trainer.global_step, outputs["loss"].item().hex())


L.seed_everything(1, verbose=False)
data = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), 4)
trainer = L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    callbacks=[Telling()],
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    gradient_clip_val=0.5,
    accumulate_grad_batches=2,
    default_root_dir="lightning_files",
)
model = Net()
trainer.fit(model, data, data)
print({k: v.item().hex() for k, v in trainer.callback_metrics.items()}, trainer.state.status.value)
print(sorted(os.path.basename(p) for _, _, names in os.walk("lightning_files") for p in names), file=sys.stderr)
