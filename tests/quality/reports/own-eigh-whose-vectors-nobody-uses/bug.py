import torch


class Eigh(torch.autograd.Function):
    """The derivative of eigh as it stands in the matrix differential literature."""

    @staticmethod
    def forward(ctx, matrix):
        w, v = torch.linalg.eigh(matrix)
        ctx.save_for_backward(w, v)
        return w, v

    @staticmethod
    def backward(ctx, wg, vg):
        w, v = ctx.saved_tensors
        n = len(w)
        vjp = torch.diag(wg)
        off_diagonal = torch.ones(n, n) - torch.eye(n)
        f = off_diagonal / (w[None, :] - w[:, None] + torch.eye(n))
        vjp = vjp + f * (v.T @ vg)
        return v @ vjp @ v.T


def spring_network(stiffness, edges, masses):
    """Dynamical matrix of masses on a ring that are coupled by springs."""
    matrix = torch.zeros(masses, masses)
    for k, (i, j) in zip(stiffness, edges):
        bond = torch.zeros(masses)
        bond[i], bond[j] = 1.0, -1.0
        matrix = matrix + k * torch.outer(bond, bond)
    return matrix


def resonances(stiffness, edges, masses):
    squared, _ = Eigh.apply(spring_network(stiffness, edges, masses))
    return torch.sqrt(squared[1:])


masses = 4
edges = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)]  # every pair: all three modes have one frequency
wanted = torch.tensor([1.2, 1.5, 1.8])
log_stiffness = torch.zeros(len(edges), requires_grad=True)
optimizer = torch.optim.SGD([log_stiffness], lr=0.05)
for iteration in range(5):
    frequencies = resonances(log_stiffness.exp(), edges, masses)
    loss = (frequencies - wanted).square().sum()
    optimizer.zero_grad()
    loss.backward()
    print(iteration, loss.item(), log_stiffness.grad.tolist())
    if not torch.isfinite(log_stiffness.grad).all():
        break
    optimizer.step()
