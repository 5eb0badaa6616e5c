"""Denoising of sequencing coverage tracks with a mixed loss: mean squared error and correlation."""

import torch
from torch import nn


class PearsonLoss(nn.Module):
    def forward(self, predicted: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        centered_p = predicted - predicted.mean(dim=1, keepdim=True)
        centered_t = target - target.mean(dim=1, keepdim=True)
        covariance = (centered_p * centered_t).sum(dim=1)
        spread = torch.sqrt((centered_p**2).sum(dim=1) * (centered_t**2).sum(dim=1))
        return 1 - (covariance / spread).mean()


class MultiLoss(nn.Module):
    def __init__(self, weights: dict[str, float]) -> None:
        super().__init__()
        self.losses = {"mse": nn.MSELoss(), "pearsonloss": PearsonLoss()}
        self.weights = weights

    def forward(self, predicted: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return sum(weight * self.losses[name](predicted, target) for name, weight in self.weights.items())


class Denoiser(nn.Module):
    def __init__(self, channels: int = 8, kernel: int = 11) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(1, channels, kernel, padding=kernel // 2)
        self.conv2 = nn.Conv1d(channels, 1, kernel, padding=kernel // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv2(torch.relu(self.conv1(x[:, None])))).squeeze(1)


def intervals(n: int, length: int) -> torch.Tensor:
    rate = torch.rand(n, 1) * torch.exp(torch.sin(torch.linspace(0, 9, length)))
    clean = 10 * rate
    clean[n // 2] = 0.0  # an interval in a gap of the assembly
    return clean


torch.manual_seed(13)
model = Denoiser()
criterion = MultiLoss({"mse": 0.001, "pearsonloss": 1.0})
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
clean = intervals(16, 200)
for epoch in range(3):
    for batch in clean.split(8):
        noisy = torch.poisson(batch * 0.2) + 0.1 * torch.rand_like(batch)
        loss = criterion(model(noisy), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, loss.item())
