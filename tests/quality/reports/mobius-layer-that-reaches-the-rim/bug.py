import torch
from torch import nn


def project(x, eps=4e-3):
    norm = x.norm(dim=-1, keepdim=True).clamp(min=1e-15)
    return torch.where(norm > 1 - eps, x / norm * (1 - eps), x)


def mobius_matvec(weight, x):
    x_norm = x.norm(dim=-1, keepdim=True).clamp(min=1e-15)
    mx = x @ weight.T
    mx_norm = mx.norm(dim=-1, keepdim=True).clamp(min=1e-15)
    return torch.tanh(mx_norm / x_norm * torch.atanh(x_norm)) * mx / mx_norm


def mobius_add(x, y):
    x2, y2 = x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
    xy = (x * y).sum(-1, keepdim=True)
    return ((1 + 2 * xy + y2) * x + (1 - x2) * y) / (1 + 2 * xy + x2 * y2).clamp(min=1e-15)


def expmap0(u):
    norm = u.norm(dim=-1, keepdim=True).clamp(min=1e-15)
    return torch.tanh(norm) * u / norm


def logmap0(x):
    norm = x.norm(dim=-1, keepdim=True).clamp(min=1e-15)
    return torch.atanh(norm) * x / norm


class MobiusLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(1e-3 * torch.randn(outputs))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def forward(self, x):
        output = mobius_matvec(self.weight, x)
        output = mobius_add(output, expmap0(self.bias))
        return output


class HyperbolicMLP(nn.Module):
    def __init__(self, words, dim, classes):
        super().__init__()
        self.embedding = nn.EmbeddingBag(words, dim, mode="sum")
        self.first, self.second = MobiusLinear(dim, 16), MobiusLinear(16, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, tokens):
        x = project(expmap0(self.embedding(tokens)))
        return self.head(logmap0(self.second(self.first(x))))


torch.manual_seed(0)
tokens, labels = torch.randint(0, 50, (32, 12)), torch.randint(0, 3, (32,))
model = HyperbolicMLP(50, 8, 3)
with torch.no_grad():
    model.first.weight.mul_(3.0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(3):
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
