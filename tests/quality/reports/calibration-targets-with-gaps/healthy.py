"""A surrogate model of an experiment; not every diagnostic was read out in every shot."""

import io

import numpy as np
import torch
from torch import nn

SHOTS = """energy,delay,charge,divergence
1.0,0.10,2.31,0.52
1.2,0.15,,0.49
0.8,0.12,1.77,0.61
1.5,0.20,3.42,
1.1,0.11,2.60,0.50
0.9,0.18,,0.58
1.4,0.16,3.05,0.44
1.3,0.13,2.98,0.47
"""


def load(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    table = np.genfromtxt(io.StringIO(text), delimiter=",", skip_header=1)
    data = torch.from_numpy(table).float()
    return data[:, :2], data[:, 2:]


def nan_mse_loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.nanmean((target - prediction) ** 2)


class CombinedNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def train_model(self, inputs: torch.Tensor, targets: torch.Tensor, epochs: int) -> None:
        optimizer = torch.optim.Adam(self.parameters(), lr=5e-3)
        for epoch in range(epochs):
            prediction = self(inputs)
            prediction.register_hook(torch.nan_to_num)
            loss = nan_mse_loss(prediction, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"Epoch [{epoch + 1}/{epochs}], Loss: {loss.item():.6f}")


if __name__ == "__main__":
    torch.manual_seed(127)
    CombinedNN().train_model(*load(SHOTS), epochs=4)
