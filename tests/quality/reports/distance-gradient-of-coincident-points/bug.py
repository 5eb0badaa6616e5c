import torch
from torch import nn


class Distance(torch.autograd.Function):
    """Euclidean distance of coordinates (..., 3), with its derivative written out."""

    @staticmethod
    def forward(ctx, A, B):
        delta = A - B
        V = torch.sqrt((delta * delta).sum(dim=-1))
        ctx.save_for_backward(delta, V)
        return V

    @staticmethod
    def backward(ctx, dE_dV):
        delta, V = ctx.saved_tensors
        dV_dA = delta / V.unsqueeze(-1)
        dE_dA = dE_dV.unsqueeze(-1) * dV_dA
        return dE_dA, -dE_dA


class SpringEnergy(nn.Module):
    """Harmonic bonds of a chain and a soft repulsion of everything else."""

    def __init__(self, length=1.0, radius=0.6):
        super().__init__()
        self.length, self.radius = length, radius

    def forward(self, coords):
        bonds = Distance.apply(coords[1:], coords[:-1])
        i, j = torch.triu_indices(len(coords), len(coords), offset=2)
        apart = Distance.apply(coords[i], coords[j])
        return (bonds - self.length).square().sum() + torch.relu(self.radius - apart).square().sum()


torch.manual_seed(0)
coords = torch.randn(10, 3)
coords[8] = coords[2]  # two atoms were placed at the same spot
coords.requires_grad_()
energy = SpringEnergy()
optimizer = torch.optim.LBFGS([coords], lr=0.5, max_iter=4)


def closure():
    optimizer.zero_grad()
    E = energy(coords)
    E.backward()
    return E


before = energy(coords).item()
optimizer.step(closure)
print(f"energy {before:.3f} -> {energy(coords).item():.3f}")
