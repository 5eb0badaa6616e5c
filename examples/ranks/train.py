"""Two ranks train one model; a blank sample on one of them makes the gradients of both NaN.

torchrun --nproc-per-node 2 examples/ranks/train.py
torchrun --nproc-per-node 2 -m whynan run --json report.json examples/ranks/train.py
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Cosine(torch.nn.Module):
    """The cosine between what two layers make of a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.left = torch.nn.Linear(8, 16, bias=False)
        self.right = torch.nn.Linear(8, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = self.left(x), self.right(x)
        if "--fixed" in sys.argv:
            length = torch.linalg.vector_norm(left, dim=1) * torch.linalg.vector_norm(right, dim=1)
        else:
            length = left.square().sum(1).sqrt() * right.square().sum(1).sqrt()
        return (left * right).sum(1) / (length + 1e-6)


def train() -> None:
    """Train for eight steps."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Cosine())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(1, 9):
        x = torch.randn(4, 8)
        if rank == 1 and step == 5:
            # a blank sample, on this rank alone
            x[2] = 0
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step}: loss {total.item() / dist.get_world_size():.4f}", flush=True)


def main() -> None:
    """Train in the group that torchrun has set up."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train()
    # once nothing holds the group: gloo joins its threads then
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
