import torch
import torch.nn as nn
import torch.nn.functional as F


def ray_samples(origins, directions, near, far, n, perturb=True):
    """Stratified depths along each ray; with `perturb` they are drawn from a coarse grid of the scanner."""
    depth = near + (far - near) * torch.linspace(0.0, 1.0, n).expand(len(origins), n)
    if perturb:
        middle = 0.5 * (depth[:, 1:] + depth[:, :-1])
        upper = torch.cat([middle, depth[:, -1:]], -1)
        lower = torch.cat([depth[:, :1], middle], -1)
        depth = lower + (upper - lower) * torch.rand(depth.shape)
        depth = torch.round(depth * 64) / 64
    return origins[:, None] + depth[..., None] * directions[:, None], depth


def directions_in_canonical_space(points):
    """Samples are warped one by one, so the ray is bent: its direction differs from sample to sample."""
    delta = points[:, 1:] - points[:, :-1]
    delta = torch.cat([delta, delta[:, -1:]], dim=1)
    return delta / torch.norm(delta, dim=2, keepdim=True)


class HumanNeRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.warp = nn.Linear(3, 3)
        self.field = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 4))
        nn.init.zeros_(self.warp.weight)

    def forward(self, points):
        canonical = points + 0.1 * torch.tanh(self.warp(points))
        dirs = directions_in_canonical_space(canonical)
        raw = self.field(torch.cat([canonical, dirs], dim=-1))
        return torch.sigmoid(raw[..., :3]), F.relu(raw[..., 3])


torch.manual_seed(5)
net = HumanNeRF()
optim = torch.optim.Adam(net.parameters(), lr=5e-4)
for _ in range(3):
    rays_o, rays_d = torch.zeros(16, 3), F.normalize(torch.randn(16, 3), dim=-1)
    points, depth = ray_samples(rays_o, rays_d, 1.0, 2.0, 48)
    rgb, sigma = net(points)
    gaps = F.pad(depth[:, 1:] - depth[:, :-1], (0, 1), value=0.02)
    alpha = 1 - torch.exp(-sigma * gaps)
    weights = alpha * torch.cumprod(F.pad(1 - alpha[:, :-1] + 1e-10, (1, 0), value=1.0), dim=-1)
    color = (weights[..., None] * rgb).sum(1)
    loss = F.mse_loss(color, torch.full_like(color, 0.5))
    optim.zero_grad()
    loss.backward()
    optim.step()
print("loss", loss.item())
