import logging
import math

import torch
from torch import nn

torch.manual_seed(0)
log = logging.getLogger("t")


class T:
    def __init__(s):
        s.m = nn.Linear(4, 4)
        s.o = torch.optim.SGD(s.m.parameters(), 0.1)

    def loss(s, x):
        h = s.m(x)
        return torch.log(torch.exp(h).sum(1)).mean()  # born

    def train_step(s, x):
        loss = s.loss(x)
        if not math.isfinite(loss.item()):
            log.warning("bad loss")
            return None
        s.o.zero_grad()
        loss.backward()
        s.o.step()
        return loss.item()

    def run(s):
        for i in range(6):
            r = s.train_step(torch.randn(3, 4) * (1 if i < 4 else 900))
            if r is None:
                break
            print(i, r)


T().run()
