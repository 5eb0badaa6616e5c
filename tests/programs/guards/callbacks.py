import math

import torch
from torch import nn

torch.manual_seed(0)


class TerminateOnNaN:
    def on_batch_end(self, trainer, logs):
        loss = logs.get("loss")
        if loss is not None and (math.isnan(loss) or math.isinf(loss)):
            print("Invalid loss, terminating training")
            trainer.stop_training = True


class Trainer:
    def __init__(self, cbs):
        self.cbs = cbs
        self.stop_training = False

    def call(self, name, *a):
        for cb in self.cbs:
            getattr(cb, name)(self, *a)

    def fit(self, m, opt, data):
        for epoch in range(2):
            for i, x in enumerate(data):
                loss = m(torch.log(x)).pow(2).mean()  # born
                logs = {"loss": loss.item(), "batch": i}
                self.call("on_batch_end", logs)
                if self.stop_training:
                    break
                opt.zero_grad()
                loss.backward()
                opt.step()
                print(epoch, i, logs["loss"])
            if self.stop_training:
                break


data = [torch.rand(5, 3) + 0.1 for _ in range(5)]
data[3][1, 1] = 0
m = nn.Linear(3, 1)
Trainer([TerminateOnNaN()]).fit(m, torch.optim.SGD(m.parameters(), 0.1), data)
