import torch
import torch.nn as nn


def instance_std(x, eps=1e-5):
    var = torch.var(x, dim=(2, 3), keepdim=True).expand_as(x)
    if torch.isnan(var).any():
        var = torch.zeros_like(var)
    return torch.sqrt(var + eps)


class EvoNorm2D(nn.Module):
    def __init__(self, input, momentum=0.9, eps=1e-5):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.gamma = nn.Parameter(torch.ones(1, input, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, input, 1, 1))
        self.v = nn.Parameter(torch.ones(1, input, 1, 1))
        self.register_buffer("running_var", torch.ones(1, input, 1, 1))

    def forward(self, x):
        if self.training:
            var = torch.var(x, dim=(0, 2, 3), unbiased=False, keepdim=True)
            self.running_var.mul_(self.momentum).add_((1 - self.momentum) * var.detach())
        else:
            var = self.running_var
        den = torch.max((var + self.eps).sqrt(), self.v * x + instance_std(x, eps=self.eps))
        return x / den * self.gamma + self.beta


class SmallNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        stages, channels = [], 1
        for width in (8, 16, 24):
            stages += [nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False), EvoNorm2D(width)]
            channels = width
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        return self.fc(self.stages(x).mean((2, 3)))


torch.manual_seed(0)
model = SmallNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    patches, labels = torch.rand(6, 1, 8, 8), torch.randint(0, 5, (6,))
    loss = nn.functional.cross_entropy(model(patches), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
