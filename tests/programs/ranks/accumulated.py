"""Accelerate gathers the gradients of two batches for a step, and steps where its loader ends.

The bad batch is the last but one: that the loader is at its end is known to it as the step is made, and was not before.
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Lengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Linear(6, 8, bias=False), nn.Linear(8, 1)

    def forward(self, x):
        e = self.embed(x)
        e = e / e.norm(dim=1, keepdim=True)  # born
        return self.out(e)


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    x = torch.randn(64, 6)
    # the seventh of the eight batches of rank 1
    x[53] = 0
    model = Lengths()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(x), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(2):
        for (x,) in loader:
            with accelerator.accumulate(model):
                loss = model(x).square().mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            accelerator.gather_for_metrics(loss.detach().reshape(1))
    accelerator.end_training()


if __name__ == "__main__":
    main()
