import torch
import torch.nn as nn
import torch.nn.functional as F


class Conv2d(nn.Conv2d):
    """Convolution with weight standardization."""

    def __init__(self, in_chan, out_chan, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True):
        super().__init__(in_chan, out_chan, kernel_size, stride, padding, dilation, groups, bias)

    def forward(self, x):
        weight = self.weight
        weight_mean = weight.mean(dim=1, keepdim=True).mean(dim=2, keepdim=True).mean(dim=3, keepdim=True)
        weight = weight - weight_mean
        std = torch.sqrt(torch.var(weight.view(weight.size(0), -1), dim=1)).view(-1, 1, 1, 1) + 1e-5
        weight = weight / std.expand_as(weight)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Bottleneck(nn.Module):
    def __init__(self, planes):
        super().__init__()
        self.conv1 = Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn1 = nn.GroupNorm(4, planes)
        self.conv2 = Conv2d(planes, planes, 1, bias=False)
        self.bn2 = nn.GroupNorm(4, planes)
        nn.init.constant_(self.conv2.weight, 1.0 / planes)  # starts as the mean over channels

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(out)))


torch.manual_seed(0)
net = nn.Sequential(Conv2d(3, 8, 3), Bottleneck(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range(3):
    loss = F.cross_entropy(net(torch.randn(4, 3, 10, 10)), torch.randint(0, 3, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
