"""Few open files and little room on the stack."""

import resource
import sys

import torch

weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
resource.setrlimit(resource.RLIMIT_NOFILE, (8, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
sys.setrecursionlimit(250)


class Deep(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.inner = Deep(depth - 1) if depth else None

    def forward(self, x):
        return x * 1.01 if self.inner is None else self.inner(x)


for depth in (1, 5, 20):
    loss = Deep(depth)(weight).sum()
    loss.backward()
    optimizer.step()
    print(depth, loss.item().hex())


def down(n):
    return down(n + 1)


try:
    down(0)
except RecursionError as error:
    print(error)
