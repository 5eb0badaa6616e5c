import torch
from torch import nn


def safe_eigh(matrix):
    return torch.linalg.eigh(matrix)


class NeuralFunctional(nn.Module):
    """A tiny exchange-correlation energy density of the electron density on the sites."""

    def __init__(self, hidden=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, density):
        return -(self.net(density.unsqueeze(-1)).squeeze(-1).square() * density).sum()

    def potential(self, density):
        density = density.detach().requires_grad_(True)
        return torch.autograd.grad(self(density), density, create_graph=True)[0]


def ring_hamiltonian(sites, hopping=-1.0):
    """Hueckel matrix of a ring: all but the lowest level come in pairs of equal energy."""
    eye = torch.eye(sites, dtype=torch.float64)
    return hopping * (torch.roll(eye, 1, 0) + torch.roll(eye, -1, 0))


def scf_loop(functional, core, electrons, cycles=3, mixing=0.3):
    sites = len(core)
    density = torch.full((sites,), electrons / sites, dtype=torch.float64)
    for _ in range(cycles):
        fock = core + torch.diag(functional.potential(density))
        energies, orbitals = safe_eigh(fock)
        occupied = orbitals[:, : electrons // 2]
        density = (1 - mixing) * density + mixing * 2.0 * occupied.square().sum(dim=1)
    return functional(density) + 2.0 * energies[: electrons // 2].sum(), density


torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
functional = NeuralFunctional()
optimizer = torch.optim.Adam(functional.parameters(), lr=1e-3)
core = torch.block_diag(ring_hamiltonian(4), ring_hamiltonian(4))  # two molecules that do not touch
reference = torch.tensor(-11.8)
for epoch in range(3):
    energy, density = scf_loop(functional, core, electrons=8)
    loss = (energy - reference).square() + density.var()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, energy.item(), "gradients finite:", all(p.grad.isfinite().all() for p in functional.parameters()))
