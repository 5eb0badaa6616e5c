import torch
from torch import nn
from torch.optim import Optimizer


def lorentz_scalar_product(x, y):
    m = x * y
    return m[:, 1:].sum(dim=1) - m[:, 0]


def tangent_norm(x):
    return torch.sqrt(lorentz_scalar_product(x, x).clamp(min=1e-12))


def exp_map(x, v):
    norm = tangent_norm(v).unsqueeze(1)
    return torch.cosh(norm) * x + torch.sinh(norm) * v / norm


def set_dim0(x):
    dim0 = torch.sqrt(1 + x[:, 1:].square().sum(dim=1, keepdim=True))
    return torch.cat([dim0, x[:, 1:]], dim=1)


class RSGD(Optimizer):
    def __init__(self, params, learning_rate):
        super().__init__(params, {"learning_rate": learning_rate})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                h = p.grad.clone()
                h[:, 0] *= -1
                proj = h + lorentz_scalar_product(p, h).unsqueeze(1) * p
                update = exp_map(p, -group["learning_rate"] * proj)
                p.copy_(set_dim0(update))


class LorentzEmbedding(nn.Module):
    def __init__(self, items, dim):
        super().__init__()
        table = 1e-3 * torch.randn(items, dim + 1)
        self.table = nn.Parameter(set_dim0(table))

    def forward(self, anchor, others):
        u = self.table[anchor].unsqueeze(1).expand(-1, others.shape[1], -1)
        v = self.table[others]
        inner = lorentz_scalar_product(u.flatten(0, 1), v.flatten(0, 1)).view(others.shape)
        distance = -torch.acosh((-inner).clamp(min=1 + 1e-6))
        return nn.functional.cross_entropy(distance, torch.zeros(len(anchor), dtype=torch.long), reduction="sum")


def pairwise_tree(depth):
    """Child and parent in a binary tree."""
    child = torch.arange(1, 2 ** (depth + 1) - 1)
    return child, (child - 1) // 2


torch.manual_seed(0)
child, parent = pairwise_tree(4)
model = LorentzEmbedding(31, 2)
optimizer = RSGD(model.parameters(), learning_rate=3.0)
for epoch in range(40):
    negatives = torch.randint(0, 31, (len(child), 5))
    loss = model(child, torch.cat([parent.unsqueeze(1), negatives], dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item(), "rows of the table that are not finite", (~model.table.isfinite()).any(1).sum().item())
