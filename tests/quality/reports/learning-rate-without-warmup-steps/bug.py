import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler


class GradualWarmup(LRScheduler):
    def __init__(self, optimizer, warmup_steps):
        self.warmup_steps = warmup_steps
        super().__init__(optimizer)

    def get_lr(self):
        factor = np.float32(self.last_epoch) / np.float32(self.warmup_steps)
        return [base * float(np.minimum(factor, 1.0)) for base in self.base_lrs]


def train(warmup_steps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = GradualWarmup(optimizer, warmup_steps)
    for step in range(3):
        inputs, label = torch.randn(2, 4, 8, 8), torch.randint(0, 3, (2, 8, 8))
        loss = nn.functional.cross_entropy(net(inputs), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"step {step} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]}")


train(0)
