import math

import torch
from torch import nn


class NonlinearNet(nn.Module):
    def __init__(self, dim, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, hidden), nn.LeakyReLU(), nn.Linear(hidden, hidden), nn.LeakyReLU(), nn.Linear(hidden, dim)
        )
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.kaiming_uniform_(m.weight)

    def forward(self, x):
        return self.net(x)


class RealNVP(nn.Module):
    """y = x on the mask, and x * exp(s) + t elsewhere; s and t see the masked half only."""

    def __init__(self, dim, flip, clip=1.0):
        super().__init__()
        mask = torch.arange(dim) % 2
        self.register_buffer("mask", (1 - mask if flip else mask).float())
        self.clip = clip
        self.log_s, self.t = NonlinearNet(dim), NonlinearNet(dim)

    def forward(self, x, log_p):
        kept = x * self.mask
        log_s = self.log_s(kept)
        log_s = self.clip * torch.tanh(log_s / self.clip) * (1 - self.mask)
        y = kept + (1 - self.mask) * (x * torch.exp(log_s) + self.t(kept))
        return y, log_p + log_s.sum(-1)


class Sequential(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.layers = nn.ModuleList(RealNVP(dim, flip=bool(i % 2)) for i in range(depth))

    def log_prob(self, x):
        log_p = torch.zeros(len(x))
        for layer in self.layers:
            x, log_p = layer(x, log_p)
        return log_p - 0.5 * (x.square() + math.log(2 * math.pi)).sum(-1)


torch.manual_seed(0)
flow = Sequential(dim=4, depth=6)
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
data = 3 * torch.randn(128, 4).cumsum(-1)
for epoch in range(2):
    for batch in data.split(64):
        nll = -flow.log_prob(batch).mean()
        optimizer.zero_grad()
        nll.backward()
        optimizer.step()
print("nll", nll.item())
