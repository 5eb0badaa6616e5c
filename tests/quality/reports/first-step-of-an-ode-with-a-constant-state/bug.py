import torch
from torch import nn


def norm(x):
    return x.abs().max()


@torch.no_grad()
def select_initial_step(fun, t0, y0, order, rtol, atol, f0):
    """First step after Hairer, Norsett and Wanner, for a tuple of states."""
    scale = [atol + rtol * y.abs() for y in y0]
    d0 = [norm(y / s) for y, s in zip(y0, scale)]
    d1 = [norm(f / s) for f, s in zip(f0, scale)]
    h0 = 0.01 * torch.stack([d0_ / d1_ for d0_, d1_ in zip(d0, d1)]).max()
    f1 = fun(t0 + h0, tuple(y + h0 * f for y, f in zip(y0, f0)))
    d2 = torch.stack([norm((b - a) / s) / h0 for b, a, s in zip(f1, f0, scale)]).max()
    h1 = (0.01 / torch.maximum(torch.stack(d1).max(), d2)) ** (1.0 / (order + 1))
    return torch.min(100 * h0, h1)


def odeint(fun, y0, t1, rtol=1e-3, atol=1e-4, max_steps=200):
    """Bogacki-Shampine pairs with step control."""
    t, f = torch.zeros(()), fun(torch.zeros(()), y0)
    h = select_initial_step(fun, t, y0, 2, rtol, atol, f)
    y = y0
    for _ in range(max_steps):
        h = torch.min(h, t1 - t)
        k2 = fun(t + h / 2, tuple(a + h / 2 * k for a, k in zip(y, f)))
        k3 = fun(t + 0.75 * h, tuple(a + 0.75 * h * k for a, k in zip(y, k2)))
        new = tuple(a + h * (2 * p + 3 * q + 4 * r) / 9 for a, p, q, r in zip(y, f, k2, k3))
        k4 = fun(t + h, new)
        slopes = zip(f, k2, k3, k4)
        errors = [h * (-5 * p / 72 + q / 12 + r / 9 - s / 8) for p, q, r, s in slopes]
        ratio = max(norm(e / (atol + rtol * a.abs())) for e, a in zip(errors, new)).detach()
        if ratio > 1:
            h = h * (0.9 / ratio ** (1 / 3)).clamp(0.2, 1.0)
            continue
        t, y, f = t + h, new, k4
        if t >= t1:
            break
        h = h * (0.9 / ratio.clamp(min=1e-6) ** (1 / 3)).clamp(max=5.0)
    return y


class ODEFunc(nn.Module):
    """The dynamics of a feature under a condition that rides along and does not change."""

    def __init__(self, dim, condition, hidden=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + condition, hidden), nn.Tanh(), nn.Linear(hidden, dim))

    def forward(self, t, state):
        feature, condition = state
        return self.net(torch.cat([feature, condition], dim=-1)), torch.zeros_like(condition)


torch.manual_seed(0)
func, head = ODEFunc(4, 2), nn.Linear(4, 3)
x, condition, labels = torch.randn(20, 4), torch.randn(20, 2), torch.randint(0, 3, (20,))
optimizer = torch.optim.Adam([*func.parameters(), *head.parameters()], lr=1e-2)
for iteration in range(3):
    features, _ = odeint(func, (x, condition), t1=torch.ones(()))
    loss = nn.functional.cross_entropy(head(features), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(iteration, loss.item())
