import torch
from torch import nn


def minkowski_dot(x, y):
    return (x[..., 1:] * y[..., 1:]).sum(-1, keepdim=True) - x[..., :1] * y[..., :1]


class Lorentz:
    @staticmethod
    def exp0(v):
        norm = v.norm(dim=-1, keepdim=True).clamp(min=1e-7)
        return torch.cat([torch.cosh(norm), torch.sinh(norm) * v / norm], dim=-1)

    @staticmethod
    def exp(x, v):
        norm = minkowski_dot(v, v).clamp(min=1e-12).sqrt()
        return torch.cosh(norm) * x + torch.sinh(norm) * v / norm

    @staticmethod
    def log(x, y):
        inner = minkowski_dot(x, y)
        distance = torch.acosh(-inner)
        direction = y + inner * x
        return distance * direction / minkowski_dot(direction, direction).clamp(min=1e-12).sqrt()


def frechet_mean(points, iterations=10, step=0.5):
    """Karcher flow that starts at the origin."""
    mean = torch.zeros_like(points[0])
    mean[0] = 1.0
    for _ in range(iterations):
        mean = Lorentz.exp(mean, step * Lorentz.log(mean, points).mean(0))
    return mean


class HyperbolicClassifier(nn.Module):
    """Features on the hyperboloid; logits are negative distances to the means of the classes."""

    def __init__(self, inputs, dim, classes):
        super().__init__()
        self.linear, self.classes = nn.Linear(inputs, dim), classes

    def forward(self, x, labels):
        points = Lorentz.exp0(self.linear(x))
        logits = []
        for label in range(self.classes):
            mean = frechet_mean(points[labels == label])
            logits.append(-Lorentz.log(mean, points).norm(dim=-1) / 1000)
        return torch.stack(logits, dim=-1)


def main():
    torch.manual_seed(3)
    labels = torch.arange(24) % 3
    x = torch.randn(3, 6)[labels] + 1e-4 * torch.randn(24, 6)  # frames of three videos
    model = HyperbolicClassifier(6, 2, 3)
    nn.init.normal_(model.linear.weight, std=3.0)
    dtype = torch.float32
    x, model = x.to(dtype), model.to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(2):
        loss = nn.functional.cross_entropy(model(x, labels), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, loss.item())


main()
