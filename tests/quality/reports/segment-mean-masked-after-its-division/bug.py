import torch
from torch import nn


def segment_mean(values, weights, index, segments):
    """Weighted mean of the rows of each segment; zero for a segment without rows."""
    assignment = nn.functional.one_hot(index, segments).float()
    total = assignment.T @ (weights * values)
    weight = assignment.T @ weights
    mean = total / weight
    return torch.where(weight == 0, torch.zeros_like(mean), mean)


class VoxelEncoder(nn.Module):
    """Points are embedded, averaged within their voxel by a learned confidence, and classified on the grid."""

    def __init__(self, grid=6, width=16, classes=4):
        super().__init__()
        self.grid = grid
        self.embed = nn.Sequential(nn.Linear(3, width), nn.ReLU())
        self.confidence = nn.Linear(width, 1)
        self.head = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.out = nn.Linear(width, classes)

    def voxel(self, points):
        cell = (points[:, :2] * self.grid).long().clamp(0, self.grid - 1)
        return cell[:, 0] * self.grid + cell[:, 1]

    def forward(self, points):
        features = self.embed(points)
        confidence = torch.sigmoid(self.confidence(features))
        pooled = segment_mean(features, confidence, self.voxel(points), self.grid**2)
        canvas = pooled.T.view(1, -1, self.grid, self.grid)
        return self.out(self.head(canvas))


def object_cloud(label, count=60):
    """Points on a bar whose direction tells the class; the corners of the grid stay empty."""
    along = 0.4 * (2 * torch.rand(count) - 1)
    angle = torch.tensor(label * torch.pi / 4)
    plane = 0.5 + torch.stack([along * angle.cos(), along * angle.sin()], 1) + 0.02 * torch.randn(count, 2)
    return torch.cat([plane, torch.rand(count, 1)], dim=1)


torch.manual_seed(0)
model = VoxelEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(4):
    label = step % 4
    logits = model(object_cloud(label))
    loss = nn.functional.cross_entropy(logits, torch.tensor([label]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), logits.isfinite().all().item())
