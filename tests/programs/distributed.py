"""DistributedDataParallel over gloo: alone, in two spawned processes, or as torchrun's worker."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def work(rank, world, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store if store else "env://", rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 3)).square().mean()
        loss.backward()
        optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    said = [None] * world
    dist.all_gather_object(said, (rank, loss.item().hex()))
    if rank == 0:
        print(world, said, total.item().hex(), model.module.weight.sum().item().hex(), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if world > 1:
        # gloo's threads do not always end before the interpreter does
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), None)
    else:
        world, store = int(sys.argv[1]), "file://" + os.path.abspath(f"store{sys.argv[1]}")
        if world == 1:
            work(0, 1, store)
        else:
            torch.multiprocessing.spawn(work, (world, store), world)
        print("all have ended", [n for n in os.listdir() if n.startswith("store")])
        if os.path.exists(store[7:]):
            os.remove(store[7:])
