"""Forked processes train weights in shared memory, one after the other."""

import torch
import torch.multiprocessing as mp


def train(rank, model):
    torch.manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(3, 1)
    model.share_memory()
    for rank in range(2):
        process = mp.get_context("fork").Process(target=train, args=(rank, model))
        process.start()
        process.join()
        print(rank, process.exitcode, [v.hex() for v in model.weight.flatten().tolist()])
    queue = mp.get_context("spawn").SimpleQueue()
    queue.put(torch.arange(3.0))
    print(queue.get().tolist(), model.weight.is_shared())
