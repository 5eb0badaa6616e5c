import math
import sys
from collections import defaultdict

import torch
from torch import nn

torch.manual_seed(0)


class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(list)

    def update(self, **kw):
        for k, v in kw.items():
            if isinstance(v, torch.Tensor):
                v = v.item()
            assert isinstance(v, (float, int))
            self.meters[k].append(v)

    def log_every(self, it, n):
        for i, o in enumerate(it):
            yield o
            print(i, {k: v[-1] for k, v in self.meters.items()})


class MAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(12, 8)
        self.dec = nn.Linear(8, 12)

    def forward(self, imgs, mask):
        mean, var = imgs.mean(-1, keepdim=True), imgs.var(-1, keepdim=True)
        target = (imgs - mean) / var**0.5  # born
        pred = self.dec(torch.relu(self.enc(imgs)))
        loss = ((pred - target) ** 2).mean(-1)
        return (loss * mask).sum() / mask.sum()


def train_one_epoch(model, loader, optimizer, accum_iter=2):
    ml = MetricLogger()
    optimizer.zero_grad()
    for it, (samples, mask) in enumerate(ml.log_every(loader, 20)):
        loss = model(samples, mask)
        loss_value = loss.item()
        if not math.isfinite(loss_value):
            print("Loss is {}, stopping training".format(loss_value))
            sys.exit(1)
        loss /= accum_iter
        loss.backward()
        if (it + 1) % accum_iter == 0:
            optimizer.step()
            optimizer.zero_grad()
        ml.update(loss=loss_value)


data = [(torch.randn(4, 12), torch.ones(4)) for _ in range(8)]
data[5][0][2] = 0.3
model = MAE()
train_one_epoch(model, data, torch.optim.AdamW(model.parameters(), lr=1e-3))
