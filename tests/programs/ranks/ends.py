"""Small trainings of several ranks whose ends differ, one of each kind."""

import atexit
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
KIND = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(steps, *, bad=-1, pause=0.0):
    for step in range(steps):
        loss = model(torch.randn(4, 8)).square().mean()
        if step == bad:
            loss = loss + (loss - loss).sqrt()  # born
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(pause)


def awaited():
    """The other ranks end after the first one has, which they see by what it does as it ends."""
    train(3)
    if rank == 0:
        atexit.register(lambda: open("ended", "w").close())
    while rank and not os.path.exists("ended"):
        time.sleep(0.05)
    time.sleep(rank)


def left():
    """The first rank is done long before the others."""
    train(3)
    if rank == 0:
        sys.exit(0)
    train(30, pause=0.05)


def raises():
    """One rank fails, and no number is bad; the others would go on for long."""
    train(5)
    if rank == 1:
        raise KeyError("no such column")
    train(10_000, pause=0.05)


def raises_backward():
    """One rank fails in its backward, while the others wait for its gradients."""
    replica = DistributedDataParallel(model)
    for step in range(6):
        out = replica(torch.randn(4, 8))
        if rank == 1 and step == 4:
            out.register_hook(lambda gradient: gradient.view(7))
        optimizer.zero_grad()
        out.square().mean().backward()
        optimizer.step()


def continues():
    """One rank has a bad step early, and ends before the others."""
    train(10, bad=3 if rank == 0 else -1, pause=rank / 5)


def objects():
    """Objects are exchanged, groups made and barriers watched, beside tensors that are not plain."""
    train(3)
    held = [None] * world
    dist.all_gather_object(held, {"rank": rank})
    dist.broadcast_object_list(held, 0)
    spread = torch.eye(4).to_sparse()
    dist.all_reduce(spread)
    for other in range(world):
        dist.new_group([other])
    works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(5)]
    works[0].wait()
    dist.monitored_barrier()
    print(f"rank {rank}: {held} {spread.to_dense().sum().item()}\n", end="", flush=True)
    train(3)


def written():
    """What is in a file that nobody closes when all are stopped."""
    file = open(f"log.{rank}", "w")  # noqa: SIM115
    file.write("begun\n")
    train(2)
    dist.barrier()
    train(2, bad=1 if rank == 1 else -1)
    dist.barrier()
    train(10_000, pause=0.05)


def left_out(model, *, seed=0):
    """Some steps are bad on one rank each; ``by_hand`` all leave them out themselves."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(seed)
    for step in range(7):
        out = model(torch.randn(4, 8))
        loss = out.square().mean()
        is_bad, by_hand = step in (3, 4, 6), "by_hand" in sys.argv
        if is_bad and not by_hand and rank == step % world:
            # what is bad is a part of the gradients
            loss = loss + (out[:, 0] - out[:, 0]).sqrt().sum()
        optimizer.zero_grad()
        loss.backward()
        if not (is_bad and by_hand):
            optimizer.step()
    weights = [p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
    with open(f"said.{rank}", "w") as file:
        file.write(" ".join(w.detach().double().sum().item().hex() for w in weights))


def skips():
    """No rank gives another its gradients."""
    left_out(model)


def skips_replicas():
    left_out(DistributedDataParallel(model), seed=rank)


def skips_shards():
    """Of a bad gradient each rank has a part, which may be good."""
    left_out(fully_shard(model, mesh=init_device_mesh("cpu", (world,))), seed=rank)


def skips_in_turn():
    """A rank makes its step before the other can come to its own."""
    if rank:
        dist.recv(torch.empty(1), 0)
    train(4, bad=2 if rank else -1)
    if not rank:
        dist.send(torch.ones(1), 1)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
globals()[KIND]()
dist.destroy_process_group()
