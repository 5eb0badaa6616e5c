import torch
from torch import nn


def normalize(x, axis=-1, order=2, epsilon=1e-12):
    """Rows of unit length, as the backend of a framework writes it."""
    if order == 2:
        # a special case: x * rsqrt(...) instead of x / sqrt(...)
        square_sum = torch.sum(torch.square(x), dim=axis, keepdim=True)
        inv_norm = torch.rsqrt(square_sum)
        inv_norm = torch.minimum(inv_norm, torch.tensor(1.0 / epsilon))
        return x * inv_norm
    norm = torch.linalg.vector_norm(x, ord=order, dim=axis, keepdim=True)
    denom = torch.maximum(norm, torch.tensor(epsilon))
    return torch.divide(x, denom)


class UnitNormalization(nn.Module):
    def forward(self, x):
        return normalize(x)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False), UnitNormalization(), nn.Linear(4, 2))
inputs, targets = torch.randn(10, 8), torch.randint(0, 2, (10,))
with torch.no_grad():
    net[0].bias.fill_(-0.5)
    inputs[4] = 0.0  # a padded row: no unit of the first layer is active
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    loss = nn.functional.cross_entropy(net(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
