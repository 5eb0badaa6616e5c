import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ChromaticAutoContrast:
    def __init__(self, p=1.0, blend_factor=0.5):
        self.p, self.blend_factor = p, blend_factor

    def __call__(self, data, rng):
        if rng.random() < self.p:
            lo = data["color"].min(0, keepdims=True)
            hi = data["color"].max(0, keepdims=True)
            scale = 255 / (hi - lo)
            contrast = (data["color"] - lo) * scale
            data["color"] = (1 - self.blend_factor) * data["color"] + self.blend_factor * contrast
        return data


class ScanDataset(Dataset):
    """Point clouds of several scanners; some of them deliver no colour."""

    def __init__(self, scans, points, transforms):
        self.rng = np.random.default_rng(0)
        self.transforms = transforms
        self.scans = []
        for index in range(scans):
            coord = self.rng.normal(size=(points, 3)).astype(np.float32)
            color = self.rng.integers(0, 256, (points, 3)).astype(np.float32)
            if index % 4 == 3:
                color[:] = 0.0
            self.scans.append((coord, color, (coord[:, 2] > 0).astype(np.int64)))

    def __len__(self):
        return len(self.scans)

    def __getitem__(self, index):
        coord, color, segment = self.scans[index]
        data = {"coord": coord, "color": color.copy(), "segment": segment}
        with np.errstate(all="ignore"):
            for transform in self.transforms:
                data = transform(data, self.rng)
        feat = np.concatenate([data["coord"], data["color"] / 255], axis=1)
        return torch.from_numpy(feat), torch.from_numpy(data["segment"])


class PointNet(nn.Module):
    def __init__(self, channels=6, hidden=32, classes=2):
        super().__init__()
        self.local, self.head = nn.Linear(channels, hidden), nn.Linear(2 * hidden, classes)

    def forward(self, feat):
        local = torch.relu(self.local(feat))
        pooled = local.amax(dim=1, keepdim=True).expand_as(local)
        return self.head(torch.cat([local, pooled], dim=-1))


torch.manual_seed(0)
dataset = ScanDataset(8, 64, [ChromaticAutoContrast()])
model = PointNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for feat, segment in DataLoader(dataset, batch_size=2):
    loss = nn.functional.cross_entropy(model(feat).flatten(0, 1), segment.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
