"""Forecasts from windows of short series; what is before a series' start is padding under a mask."""

import torch
from torch import nn


def masked_mean(x: torch.Tensor, mask: torch.Tensor, dim: int = -1) -> torch.Tensor:
    available = mask.sum(dim=dim, keepdim=True)
    available = torch.where(available == 0, torch.ones_like(available), available)
    return (x * mask).sum(dim=dim, keepdim=True) / available


class StandardScaler(nn.Module):
    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.x_shift = masked_mean(x, mask)
        variance = masked_mean((x - self.x_shift) ** 2, mask)
        self.x_scale = torch.sqrt(variance + self.eps)
        return (x - self.x_shift) / self.x_scale

    def inverse(self, z: torch.Tensor) -> torch.Tensor:
        return z * self.x_scale + self.x_shift


class MLPForecaster(nn.Module):
    def __init__(self, input_size: int, horizon: int) -> None:
        super().__init__()
        self.scaler = StandardScaler()
        self.mlp = nn.Sequential(nn.Linear(2 * input_size, 32), nn.ReLU(), nn.Linear(32, horizon))

    def forward(self, y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scaled = self.scaler(y, mask) * mask
        return self.scaler.inverse(self.mlp(torch.cat([scaled, mask], dim=-1)))


def make_windows(series: list[torch.Tensor], input_size: int, horizon: int) -> tuple[torch.Tensor, ...]:
    y, mask, target = [], [], []
    for values in series:
        padded = torch.cat([torch.zeros(input_size), values])
        available = torch.cat([torch.zeros(input_size), torch.ones(len(values))])
        for start in range(0, len(values) - horizon + 1, horizon):
            stop = start + input_size
            y.append(padded[start:stop])
            mask.append(available[start:stop])
            target.append(padded[stop : stop + horizon])
    return torch.stack(y), torch.stack(mask), torch.stack(target)


torch.manual_seed(9)
series = [20 + torch.randn(n).cumsum(0) for n in (30, 18, 5)]
y, mask, target = make_windows(series, input_size=8, horizon=4)
model = MLPForecaster(8, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(4):
    optimizer.zero_grad()
    loss = (model(y, mask) - target).abs().mean()
    loss.backward()
    optimizer.step()
    print(f"train loss, step {step}: {loss.item():.3f}")
