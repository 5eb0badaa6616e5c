"""An equivariant model: vector features, their norms, and a loss on the forces."""

import torch
from torch import nn


class VectorMessage(nn.Module):
    def __init__(self, channels: int, cutoff: float) -> None:
        super().__init__()
        self.cutoff = cutoff
        self.filter = nn.Sequential(nn.Linear(1, channels), nn.SiLU(), nn.Linear(channels, channels))

    def forward(self, pos: torch.Tensor) -> torch.Tensor:
        n = pos.size(0)
        row, col = torch.where(~torch.eye(n, dtype=torch.bool))
        edge = pos[row] - pos[col]
        length = torch.linalg.vector_norm(edge, dim=-1, keepdim=True)
        envelope = 0.5 * (torch.cos(torch.pi * length / self.cutoff) + 1.0) * (length < self.cutoff)
        message = (edge / length)[:, :, None] * (self.filter(length) * envelope)[:, None, :]
        return pos.new_zeros(n, 3, message.size(-1)).index_add(0, row, message)


class GatedEquivariantBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.vec1_proj = nn.Linear(channels, channels, bias=False)
        self.update = nn.Sequential(nn.Linear(channels, channels), nn.SiLU(), nn.Linear(channels, 1))

    def forward(self, vec: torch.Tensor) -> torch.Tensor:
        projected = self.vec1_proj(vec)
        vec1 = projected.new_zeros(projected.size(0), projected.size(2))
        mask = (projected != 0).flatten(1).any(dim=1)
        vec1[mask] = torch.norm(projected[mask], dim=-2)
        return self.update(vec1)


class EnergyModel(nn.Module):
    def __init__(self, channels: int = 8, cutoff: float = 3.0) -> None:
        super().__init__()
        self.message = VectorMessage(channels, cutoff)
        self.output = GatedEquivariantBlock(channels)

    def forward(self, pos: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        energy = self.output(self.message(pos)).sum()
        (gradient,) = torch.autograd.grad(energy, pos, create_graph=True)
        return energy, -gradient


def main() -> None:
    torch.manual_seed(2)
    model = EnergyModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    geometry = torch.tensor([[0.0, 0.0, 0.0], [1.1, 0.0, 0.0], [0.0, 1.3, 0.2], [0.0, 0.0, 7.0]])
    reference = 0.1 * torch.randn(4, 3)
    for _ in range(3):
        energy, forces = model(geometry.clone().requires_grad_())
        loss = (energy + 1.0) ** 2 + (forces - reference).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"energy {energy.item():.5f} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
