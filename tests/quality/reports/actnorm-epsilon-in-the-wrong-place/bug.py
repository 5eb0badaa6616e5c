import math

import torch
from torch import nn


class ActNorm(nn.Module):
    """Scale and shift that are set from the first batch, so that it leaves with zero mean and unit variance."""

    def __init__(self, channels, scale=1.0, logscale_factor=3.0):
        super().__init__()
        self.scale, self.logscale_factor = scale, logscale_factor
        self.b = nn.Parameter(torch.zeros(1, channels, 1))
        self.logs = nn.Parameter(torch.zeros(1, channels, 1))
        self.initialized = False

    @torch.no_grad()
    def initialize(self, x):
        self.b.copy_(-x.mean(dim=(0, 2), keepdim=True))
        variance = (x + self.b).square().mean(dim=(0, 2), keepdim=True)
        self.logs.copy_(torch.log(self.scale / torch.sqrt(variance) + 1e-6) / self.logscale_factor)
        self.initialized = True

    def forward(self, x, objective):
        if not self.initialized:
            self.initialize(x.flatten(2))
        logs = self.logs * self.logscale_factor
        out = (x.flatten(2) + self.b) * torch.exp(logs)
        return out.view_as(x), objective + logs.sum() * x.shape[2] * x.shape[3]


class Coupling(nn.Module):
    def __init__(self, channels, hidden=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(channels // 2, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, channels, 1)
        )

    def forward(self, x, objective):
        z1, z2 = x.chunk(2, dim=1)
        shift, scale = self.net(z1).chunk(2, dim=1)
        scale = torch.sigmoid(scale + 2.0)
        return torch.cat([z1, (z2 + shift) * scale], 1), objective + scale.log().flatten(1).sum(1)


class Glow(nn.Module):
    def __init__(self, channels=4, depth=2):
        super().__init__()
        self.steps = nn.ModuleList([layer for _ in range(depth) for layer in (ActNorm(channels), Coupling(channels))])

    def forward(self, x):
        objective = torch.zeros(len(x))
        for step in self.steps:
            x, objective = step(x, objective)
        prior = -0.5 * (x.square() + math.log(2 * math.pi)).flatten(1).sum(1)
        return -(objective + prior).mean() / (math.log(2) * x[0].numel())


torch.manual_seed(0)
images = torch.rand(8, 4, 4, 4)
images[:, 3] = 1.0  # the alpha channel of a png
glow = Glow()
optimizer = torch.optim.Adam(glow.parameters(), lr=1e-3)
for _ in range(3):
    bits_per_dim = glow(images + 0.0)
    optimizer.zero_grad()
    bits_per_dim.backward()
    optimizer.step()
print("bits per dimension", bits_per_dim.item())
