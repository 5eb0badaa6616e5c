import torch
from torch import nn


class Norm(nn.Module):
    """The norms of the irreducible parts of a feature: [batch, mul * dim] -> [batch, mul]."""

    def __init__(self, mul: int, dim: int) -> None:
        super().__init__()
        self.mul, self.dim = mul, dim

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        parts = features.reshape(-1, self.mul, self.dim)
        squared = torch.einsum("bui,bui->bu", parts, parts)
        return squared.sqrt()


class NormActivation(nn.Module):
    """Scales each part by a function of its norm."""

    def __init__(self, mul: int, dim: int) -> None:
        super().__init__()
        self.norm = Norm(mul, dim)
        self.biases = nn.Parameter(torch.zeros(mul))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        norms = self.norm(features)
        scalings = torch.sigmoid(norms + self.biases)
        parts = features.reshape(-1, self.norm.mul, self.norm.dim)
        return (parts * scalings.unsqueeze(-1)).flatten(1)


torch.manual_seed(0)
mixing = nn.Parameter(torch.randn(12, 12) / 4)
activation = NormActivation(4, 3)
optimizer = torch.optim.Adam([mixing, *activation.parameters()], lr=1e-2)
atoms = torch.randn(9, 12)
atoms[2] = 0  # an atom without neighbours has no vector features
target = torch.randn(9, 12)
for _ in range(3):
    loss = (activation(atoms @ mixing) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(float(loss))
