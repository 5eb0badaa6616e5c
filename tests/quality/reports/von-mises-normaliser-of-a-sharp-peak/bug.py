import math

import torch
from torch import nn


class VonMises:
    def __init__(self, mu, kappa):
        self.mu, self.kappa = mu, kappa

    def logp(self, value):
        log_norm = math.log(2 * math.pi) + torch.log(torch.special.i0(self.kappa))
        return self.kappa * torch.cos(self.mu - value) - log_norm


class OrientationHead(nn.Module):
    """Heading of a vehicle as an angle with a concentration of its own."""

    def __init__(self, features, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, hidden), nn.ReLU())
        self.direction, self.log_kappa = nn.Linear(hidden, 2), nn.Linear(hidden, 1)

    def forward(self, x):
        latent = self.body(x)
        sine, cosine = self.direction(latent).unbind(-1)
        return VonMises(torch.atan2(sine, cosine), self.log_kappa(latent).squeeze(-1).exp())


def crops(count):
    """Features of image crops that tell the heading almost without noise."""
    heading = (2 * torch.rand(count) - 1) * math.pi
    lateral = 0.05 * torch.randn(count, 2)
    return torch.cat([torch.stack([heading.sin(), heading.cos()], -1) * 3, lateral], -1), heading


torch.manual_seed(0)
x, heading = crops(256)
model = OrientationHead(4)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
for epoch in range(60):
    for xb, hb in zip(x.split(64), heading.split(64)):
        loss = -model(xb).logp(hb).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 10 == 9:
        with torch.no_grad():
            print(epoch, "nll", loss.item(), "largest kappa", model(x).kappa.max().item())
