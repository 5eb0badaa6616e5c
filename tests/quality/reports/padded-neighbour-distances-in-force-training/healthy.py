"""Energies and forces of a batch of molecules of unequal size, padded to the largest."""

import torch
from torch import nn


def atom_distances(positions: torch.Tensor, neighbors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    batch = torch.arange(positions.size(0))[:, None, None]
    vectors = positions[batch, neighbors] - positions[:, :, None, :]
    distances = vectors.new_zeros(mask.shape)
    distances[mask != 0] = torch.sqrt(torch.sum(vectors[mask != 0] ** 2, dim=1))
    return distances


class PairPotential(nn.Module):
    def __init__(self, n_gaussians: int = 12, cutoff: float = 4.0) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.linspace(0.5, cutoff, n_gaussians))
        self.filter = nn.Sequential(nn.Linear(n_gaussians, 24), nn.Softplus(), nn.Linear(24, 1))

    def forward(
        self, positions: torch.Tensor, neighbors: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        distances = atom_distances(positions, neighbors, mask)
        gaussians = torch.exp(-4.0 * (distances[..., None] - self.offsets) ** 2)
        pair = self.filter(gaussians).squeeze(-1) * mask
        energy = pair.sum(dim=(1, 2))
        forces = -torch.autograd.grad(energy.sum(), positions, create_graph=True)[0]
        return energy, forces


def collate(molecules: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    size = max(len(m) for m in molecules)
    positions = torch.zeros(len(molecules), size, 3)
    neighbors = torch.zeros(len(molecules), size, size - 1, dtype=torch.long)
    mask = torch.zeros(len(molecules), size, size - 1)
    for i, molecule in enumerate(molecules):
        n = len(molecule)
        positions[i, :n] = molecule
        for j in range(n):
            others = [k for k in range(n) if k != j]
            neighbors[i, j, : n - 1] = torch.tensor(others)
            mask[i, j, : n - 1] = 1.0
    return positions, neighbors, mask


torch.manual_seed(5)
molecules = [torch.randn(n, 3) * 1.5 for n in (5, 3, 4)]
positions, neighbors, mask = collate(molecules)
target = torch.randn(3, 5, 3) * 0.1
model = PairPotential()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    energy, forces = model(positions.clone().requires_grad_(), neighbors, mask)
    loss = energy.pow(2).mean() + 10 * (forces - target).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
