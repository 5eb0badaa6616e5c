import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn import Parameter


class ArcMarginProduct(nn.Module):
    r"""Large margin arc distance: cos(theta + m)

    Args:
        in_features: size of each input sample
        out_features: number of classes
        s: norm of input feature
        m: margin
    """

    def __init__(self, in_features, out_features, s=30.0, m=0.50):
        super().__init__()
        self.s, self.m = s, m
        self.weight = Parameter(torch.empty(out_features, in_features))
        nn.init.xavier_uniform_(self.weight)
        self.cos_m, self.sin_m = math.cos(m), math.sin(m)
        self.th = math.cos(math.pi - m)
        self.mm = math.sin(math.pi - m) * m

    def forward(self, input, label):
        cosine = F.linear(F.normalize(input), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(1e-9, 1))
        phi = cosine * self.cos_m - sine * self.sin_m
        phi = torch.where(cosine > self.th, phi, cosine - self.mm)
        one_hot = torch.zeros_like(cosine).scatter_(1, label.view(-1, 1), 1)
        return self.s * (one_hot * phi + (1.0 - one_hot) * cosine)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 5), nn.PReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.fc = nn.Linear(6 * 4 * 4, 2)  # two dimensions, to plot them

    def forward(self, x):
        return self.fc(self.features(x))


torch.manual_seed(0)
net, metric_fc = LeNet(), ArcMarginProduct(2, 4)
optimizer = torch.optim.SGD([*net.parameters(), *metric_fc.parameters()], lr=0.1, weight_decay=5e-4)
images, labels = torch.rand(4, 1, 12, 12), torch.arange(4)
with torch.no_grad():
    metric_fc.weight.copy_(net(images))  # centres are the first picture of each class
for epoch in range(3):
    loss = F.cross_entropy(metric_fc(net(images), labels), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("epoch", epoch, "loss", loss.item())
