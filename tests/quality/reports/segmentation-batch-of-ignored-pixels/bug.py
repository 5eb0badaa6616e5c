import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, Dataset

IGNORE = 255


class Tiles(Dataset):
    """Tiles of a map; the last ones lie beyond the border of the survey, and have no labels."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, 12, 12, generator=generator)
        label = torch.randint(0, 3, (12, 12), generator=generator)
        if index >= 4:
            label.fill_(IGNORE)
        return image, label


class SemanticSegmentationLoss(nn.Module):
    def forward(self, preds, targets):
        preds = F.interpolate(preds, size=targets.shape[-2:], mode="bilinear", align_corners=False)
        return F.cross_entropy(preds, targets, ignore_index=IGNORE)


class Segmenter(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.SiLU(), nn.Conv2d(8, 3, 1))
        self.loss = SemanticSegmentationLoss()
        self.history = []

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = self.loss(self.net(images), labels)
        self.history.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    seed_everything(0, verbose=False)
    segmenter = Segmenter()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(segmenter, DataLoader(Tiles(), batch_size=2))
    print("sem_loss", segmenter.history)
