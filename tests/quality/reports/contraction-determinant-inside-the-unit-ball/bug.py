import torch
from torch import nn


def contract_mean_std(x, std):
    """Points beyond the unit ball are drawn into a ball of radius 2; std shrinks with the determinant of that map."""
    mag = x.norm(dim=-1, keepdim=True)
    outside = mag > 1
    z = torch.where(outside, (2 - 1 / mag) * (x / mag), x)
    det_13 = (torch.pow(2 * mag - 1, 1 / 3) / mag) ** 2
    std = torch.where(outside[..., 0], det_13[..., 0] * std, std)
    return z, std


class PoseRefinement(nn.Module):
    """A small rotation about the optical axis and a translation for every camera."""

    def __init__(self, cameras):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(cameras, 3))

    def forward(self, origins, directions, camera):
        return origins + self.shift[camera], directions


class ZipField(nn.Module):
    """A coarse grid of features, weighted down where the cone is wider than a cell."""

    def __init__(self, size=12, features=4):
        super().__init__()
        self.grid = nn.Parameter(0.1 * torch.randn(1, features, size, size, size))
        self.size = size
        self.mlp = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, means, stds):
        z, stds = contract_mean_std(means, stds)
        features = nn.functional.grid_sample(self.grid, z.view(1, -1, 1, 1, 3) / 2, align_corners=True)
        weights = torch.erf(1 / (8**0.5 * stds * self.size))
        out = self.mlp(features.view(self.grid.shape[1], -1).T.view(*means.shape[:2], -1) * weights[..., None])
        return nn.functional.softplus(out[..., 0] - 1), torch.sigmoid(out[..., 1:])


def render(field, origins, directions, samples=12, near=0.2, far=6.0, radius=0.01):
    t = torch.linspace(near, far, samples)
    means = origins[:, None] + t[None, :, None] * directions[:, None]
    density, rgb = field(means, radius * t.expand(len(origins), -1))
    alpha = 1 - torch.exp(-density * (far - near) / samples)
    trans = torch.cumprod(torch.cat([torch.ones(len(alpha), 1), 1 - alpha[:, :-1]], -1), -1)
    return ((alpha * trans)[..., None] * rgb).sum(1)


torch.manual_seed(0)
field, poses = ZipField(), PoseRefinement(3)
optimizer = torch.optim.Adam([{"params": field.parameters(), "lr": 1e-2}, {"params": poses.parameters(), "lr": 1e-3}])
camera = torch.arange(48) % 3
origins = nn.functional.normalize(torch.randn(3, 3), dim=-1)[camera] * 1.5
directions = nn.functional.normalize(-origins + 0.3 * torch.randn(48, 3), dim=-1)
colors = torch.rand(48, 3)
for step in range(3):
    loss = (render(field, *poses(origins, directions, camera)) - colors).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), "cameras finite:", poses.shift.isfinite().all().item())
