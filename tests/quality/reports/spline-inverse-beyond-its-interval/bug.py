import math

import torch
from torch import nn
from torch.nn import functional as F


class RationalQuadraticSpline(nn.Module):
    """Monotone spline on [-bound, bound] with learned knots, the identity outside."""

    def __init__(self, knots=6, bound=3.0):
        super().__init__()
        self.bound = bound
        self.widths, self.heights = nn.Parameter(torch.zeros(knots)), nn.Parameter(torch.linspace(-0.8, 0.8, knots))
        self.slopes = nn.Parameter(torch.randn(knots - 1) - 0.5)

    def knots(self):
        def positions(raw):
            share = 1e-2 + (1 - 1e-2 * len(raw)) * torch.softmax(raw, 0)
            return F.pad(2 * self.bound * share.cumsum(0) - self.bound, (1, 0), value=-self.bound)

        slopes = F.pad(F.softplus(self.slopes) + 1e-3, (1, 1), value=1.0)
        return positions(self.widths), positions(self.heights), slopes

    def inverse_and_log_det(self, y):
        in_bounds = (y > -self.bound) & (y < self.bound)
        x_pos, y_pos, slopes = self.knots()
        k = torch.searchsorted(y_pos.detach(), y.detach()).sub(1).clamp(0, len(x_pos) - 2)
        width, height = x_pos[k + 1] - x_pos[k], y_pos[k + 1] - y_pos[k]
        d0, d1 = slopes[k], slopes[k + 1]
        s, above = height / width, y - y_pos[k]
        bend = above * (d1 + d0 - 2 * s)
        a, b, c = height * (s - d0) + bend, height * d0 - bend, -s * above
        xi = 2 * c / (-b - torch.sqrt(b.square() - 4 * a * c))
        x = torch.where(in_bounds, xi * width + x_pos[k], y)
        den = s + (d1 + d0 - 2 * s) * xi * (1 - xi)
        deriv = s.square() * (d1 * xi.square() + 2 * s * xi * (1 - xi) + d0 * (1 - xi).square()) / den.square()
        return x, torch.where(in_bounds, -torch.log(deriv), torch.zeros_like(y))


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift, self.log_scale = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        self.spline = RationalQuadraticSpline()

    def log_prob(self, data):
        x, log_det = self.spline.inverse_and_log_det((data - self.shift) * torch.exp(-self.log_scale))
        return -0.5 * x.square() - 0.5 * math.log(2 * math.pi) + log_det - self.log_scale


torch.manual_seed(0)
samples = torch.cat([torch.randn(60) * 0.7 - 1, torch.randn(8) * 0.3 + 9.0])  # a mode that was found later
flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
for step in range(3):
    loss = -flow.log_prob(samples).mean()
    optimizer.zero_grad()
    loss.backward()
    bad = [name for name, p in flow.named_parameters() if not p.grad.isfinite().all()]
    optimizer.step()
    print(step, loss.item(), bad)
