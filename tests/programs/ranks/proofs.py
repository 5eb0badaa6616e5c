"""Small trainings of several ranks whose gradients go bad on rank 1, where a root is 0; they differ in what an edit does.

With the edit the program goes on alike on all ranks, or one of them fails, is bad still, or exchanges something else.
"""

import gc
import math
import sys

import torch
import torch.distributed as dist
from probabilities import Probable
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
KIND, STEPS, WHEN = sys.argv[1], 20, 3


def lengths(model, step):
    gate = torch.ones(4, 1)
    if step == WHEN and rank == 1:
        gate[2] = 0
    return (model(torch.randn(4, 8)) * gate).abs().sum(1).sqrt()


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


def roots():
    train(DistributedDataParallel(small()))


def summed():
    train(small(), exchange)


def failing():
    """With the edit the other rank raises."""

    def then(model, step):
        exchange(model, step)
        if rank == 0 and step == WHEN and is_mended(model):
            raise ValueError("seven")

    train(small(), then)


def left_bad():
    """With the edit the other rank has a gradient of its own that is bad."""

    def then(model, step):
        exchange(model, step)
        if rank == 0 and step == WHEN and is_mended(model):
            model[0].bias.grad.fill_(math.inf)

    train(small(), then)


def diverging():
    """With the edit one rank exchanges once more."""

    def then(model, step):
        if rank == 1 and step == WHEN and is_mended(model):
            dist.all_reduce(torch.ones(3))
        exchange(model, step)

    train(small(), then)


def clipped():
    """The norm of weights in parts is a functional collective, whose result is not kept."""
    model = small()
    fully_shard(model)
    train(model, lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 1.0))


def apart():
    """A probability is 0, whose sigmoid stands in another file."""
    torch.manual_seed(0)
    train(DistributedDataParallel(Probable()), losses=likelihoods)


def likelihoods(model, step):
    gate = torch.ones(4, 1)
    if step == WHEN and rank == 1:
        gate[2] = 1e4
    p = model(torch.randn(4, 8), gate)
    return -torch.log(p)


def both():
    """With an edit of the first root the second one is still there."""
    train(DistributedDataParallel(small()), losses=norms)


def norms(model, step):
    gate = torch.ones(4, 1)
    if step == WHEN and rank == 1:
        gate[2] = 0
    out = model(torch.randn(4, 8)) * gate
    first = out.abs().sum(1).sqrt()
    return first + out.square().sum(1).sqrt()


def train(model, then=lambda model, step: None, losses=lengths):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = losses(model, step).mean()
        optimizer.zero_grad()
        loss.backward()
        then(model, step)
        optimizer.step()


def exchange(model, step):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def is_mended(model):
    return all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
globals()[KIND]()
gc.collect()
dist.destroy_process_group()
