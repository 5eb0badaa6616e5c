"""A distance field over body poses: quaternions in, distance to the manifold of plausible poses out."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class DFNet(nn.Module):
    def __init__(self, joints: int, hidden: int = 24, depth: int = 3, weight_normalization: bool = True) -> None:
        super().__init__()
        sizes = [4 * joints] + [hidden] * depth + [1]
        layers = []
        for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            linear = nn.Linear(fan_in, fan_out)
            if i == len(sizes) - 2:
                nn.init.zeros_(linear.weight)  # the field starts flat, at the bias
                nn.init.constant_(linear.bias, 0.1)
            layers.append(weight_norm(linear) if weight_normalization else linear)
        self.layers = nn.ModuleList(layers)

    def forward(self, pose: torch.Tensor) -> torch.Tensor:
        x = pose.flatten(1)
        for layer in self.layers[:-1]:
            x = nn.functional.softplus(layer(x), beta=100)
        return torch.relu(self.layers[-1](x)).squeeze(1)


def random_quaternions(n: int, joints: int, spread: float) -> torch.Tensor:
    base = torch.tensor([1.0, 0.0, 0.0, 0.0])
    return nn.functional.normalize(base + spread * torch.randn(n, joints, 4), dim=-1)


def main() -> None:
    torch.manual_seed(163)
    model = DFNet(joints=5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    manifold = random_quaternions(64, 5, spread=0.1)
    for epoch in range(3):
        noisy = random_quaternions(64, 5, spread=0.5)
        distance = 0.5 * torch.arccos((noisy[:, None] * manifold).sum(-1).abs().clamp(max=0.9999)).mean(-1).amin(1)
        loss = (model(noisy) - distance).abs().mean() + model(manifold).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
