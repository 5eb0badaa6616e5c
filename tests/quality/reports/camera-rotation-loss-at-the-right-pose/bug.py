import torch
from torch import nn


def skew(v):
    x, y, z = v.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).unflatten(-1, (3, 3))


def so3_exp(v):
    return torch.linalg.matrix_exp(skew(v))


def rotmat_geodesic_distance(r1, r2):
    trace = (r1.transpose(-1, -2) @ r2).diagonal(dim1=-2, dim2=-1).sum(-1)
    cosine = (trace - 1) / 2
    return torch.acos(cosine.clamp(-1.0, 1.0))


class DoubleGeodesicLoss(nn.Module):
    """Rotation angle as an arc at the radius of the C-arm, and translation, both in millimetres."""

    def __init__(self, source_to_detector=1020.0):
        super().__init__()
        self.radius = source_to_detector / 2

    def forward(self, rotation, translation, true_rotation, true_translation):
        angular = self.radius * rotmat_geodesic_distance(rotation, true_rotation)
        shift = (translation - true_translation).square().sum(-1)
        return (angular.square() + shift + 1e-6).sqrt().mean()


class PoseRegressor(nn.Module):
    """Offsets from an isocentre pose; the last layer starts at zero."""

    def __init__(self, features=16):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, features, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(4 * features, 6)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        rotation, translation = self.head(self.backbone(x)).split(3, -1)
        return so3_exp(rotation), translation


torch.manual_seed(0)
images = torch.rand(6, 1, 32, 32)
offsets = 0.3 * torch.randn(6, 3)
offsets[0] = 0.0  # the atlas view itself is part of the batch
true_rotation, true_translation = so3_exp(offsets), 20 * torch.randn(6, 3)
model, criterion = PoseRegressor(), DoubleGeodesicLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    loss = criterion(*model(images), true_rotation, true_translation)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, "loss", loss.item())
