import torch
from torch import nn
from torch.nn import functional as F


class PlaceDataset(torch.utils.data.Dataset):
    """References first, then the queries; a query is a noisy view of one of the references."""

    def __init__(self, num_references=40, num_queries=16):
        self.num_references, self.num_queries = num_references, num_queries
        places = torch.randn(num_references, 3, 16, 16)
        self.ground_truth = torch.randint(0, num_references, (num_queries,))
        self.images = torch.cat([places, places[self.ground_truth] + 0.3 * torch.randn(num_queries, 3, 16, 16)])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], index


class VPRModel(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, dim, 5, stride=2), nn.ReLU())

    def forward(self, x):
        return F.normalize(self.backbone(x).clamp(min=1e-6).pow(3).mean(dim=(2, 3)).pow(1 / 3), dim=-1)

    def training_step(self, batch):
        images, _ = batch
        first, second = self(images), self(images + 0.2 * torch.randn_like(images))
        return F.cross_entropy(first @ second.T / 0.1, torch.arange(len(images)))

    def validation_step(self, batch):
        return self(batch[0])

    def validation_epoch_end(self, outputs, dataset, k_values=(1, 5)):
        feats = torch.cat(outputs)
        r_list, q_list = feats[: dataset.num_references], feats[dataset.num_references :]
        ranked = (q_list @ r_list.T).argsort(dim=1, descending=True)
        hits = ranked == dataset.ground_truth[: len(q_list), None]
        correct = torch.stack([hits[:, :k].any(dim=1).sum() for k in k_values])
        return correct / len(q_list)


class Trainer:
    def __init__(self, max_epochs, fast_dev_run=False):
        self.max_epochs, self.limit = (1, 1) if fast_dev_run else (max_epochs, None)

    def fit(self, model, train_loader, val_loader):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(self.max_epochs):
            for batch in list(train_loader)[: self.limit]:
                loss = model.training_step(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                outputs = [model.validation_step(batch) for batch in list(val_loader)[: self.limit]]
                recalls = model.validation_epoch_end(outputs, val_loader.dataset)
            print(epoch, "loss", loss.item(), "R@1, R@5", recalls.tolist())


torch.manual_seed(0)
dataset = PlaceDataset()
loaders = [torch.utils.data.DataLoader(dataset, batch_size=20, shuffle=shuffle) for shuffle in (True, False)]
Trainer(max_epochs=2, fast_dev_run=True).fit(VPRModel(), *loaders)
