"""A program that starts its ranks itself; with ``bad`` a number goes bad on one of them.

``alike``: they have no process group, and train one model that they share.
"""

import os
import signal
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

WAY, BAD = sys.argv[1], "bad" in sys.argv


def train(rank, world, path, model, over):
    torch.set_num_threads(1)
    if WAY != "alike":
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
        # what is handed over shares its memory
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(6):
        loss = model(torch.randn(4, 8)).square().mean()
        if BAD and step == 3 and rank == 1:
            loss = loss + (loss - loss).sqrt()  # born
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if WAY == "killed" and step == 2 and rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    if WAY == "replicas":
        with open(f"said.{rank}", "w") as file:
            file.write(loss.item().hex())
        # gloo fails a sum that is over where the other closes before the result is fetched
        over.wait()
        dist.destroy_process_group()


if __name__ == "__main__":
    model = torch.nn.Linear(8, 4) if WAY == "alike" else None
    with tempfile.TemporaryDirectory() as folder:
        over = mp.get_context("spawn").Barrier(2)
        mp.spawn(train, args=(2, os.path.join(folder, "store"), model, over), nprocs=2)
    print("over")
