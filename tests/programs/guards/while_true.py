import numpy as np
import torch
from torch import nn

torch.manual_seed(1)
net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)


def batches():
    k = 0
    while True:
        x = torch.rand(8, 3)
        yield x, (x.sum(1, keepdim=True) if k != 4 else torch.zeros(8, 1))
        k += 1


def train():
    it = batches()
    n = 0
    while True:
        x, y = next(it)
        pred = net(x)
        loss = ((pred - y) / y).abs().mean()  # born
        if not np.isfinite(float(loss)):
            print("stopped at", n)
            return
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(n, float(loss))
        n += 1
        if n > 10:
            return


train()
