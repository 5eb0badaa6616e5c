"""A LightningModule that learns distributions over topics, by a divergence written by hand."""
# step: 11
# element: [3, 0]
# birth: pole

import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Topics(lightning.LightningModule):
    def __init__(self, words: int, topics: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(words, 16), nn.GELU(), nn.Linear(16, topics))

    def divergence(self, target: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        surprise = torch.log(target) - logits.log_softmax(dim=-1)  # born
        return (target * surprise).sum(dim=-1).mean()

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        counts, target = batch
        loss = self.divergence(target, self.net(counts))
        print(batch_idx + 1, repr(loss.item()))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main() -> None:
    torch.manual_seed(19)
    counts = torch.poisson(torch.full((128, 12), 2.0))
    target = torch.softmax(torch.randn(128, 4), dim=-1)
    target[83] = torch.tensor([0.0, 1.0, 0.0, 0.0])  # labelled by hand
    loader = DataLoader(TensorDataset(counts, target), batch_size=8)
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        max_steps=14,
    )
    trainer.fit(Topics(12, 4), loader)


if __name__ == "__main__":
    main()
