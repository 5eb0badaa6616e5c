"""Small trainings of several ranks in which the step before the one that is bad has borne what makes it so.

An update of the optimizer spoils the weights of all ranks; or a buffer of the first one goes bad, which
DistributedDataParallel gives to the others as it is called next.
"""

import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
KIND, STEPS, WHEN = sys.argv[1], 12, 3
kept = []


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, tokens):
        return self.out(self.table(tokens).mean(1))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("level", torch.tensor(0.0))
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        y = self.out(x * torch.exp(-self.level))
        with torch.no_grad():
            now = x.abs().amax().log()  # born level
            self.level.mul_(0.9).add_(now, alpha=0.1)
        return y


def moved():
    """A row that no token has used until then has a first and a second moment of 0, and no eps."""
    model = DistributedDataParallel(Pooled())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        if step == WHEN:
            optimizer.param_groups[0]["eps"] = 0.0
        tokens = torch.full((6, 5), 8) if step > WHEN else torch.randint(0, 8, (6, 5))
        loss = model(tokens).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # born moved


def level():
    model = DistributedDataParallel(Scaled())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        x = torch.randn(5, 4) * (0 if rank == 0 and step == WHEN else 1)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def level_beside():
    """With a thread of the program's own it is not run again from its start."""
    over = threading.Event()
    threading.Thread(target=over.wait, daemon=True).start()
    level()
    over.set()


def given():
    """Behind the last step the first rank spoils a weight that nobody reads, and gives it to the others."""
    model = Pooled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        loss = model(torch.randint(0, 8, (6, 5))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        if rank == 0:
            model.out.bias.sub_(model.out.bias).div_(0)  # born given
        dist.broadcast(model.out.bias.data, 0)
    # the program has them still as it ends
    kept.extend([model, optimizer])


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
globals()[KIND]()
dist.destroy_process_group()
