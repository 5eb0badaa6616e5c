"""Activation checkpointing: forwards that run twice, with dropout that must fall the same way."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)
forwards = 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix, self.drop = nn.LayerNorm(6), nn.Linear(6, 6), nn.Dropout(0.3)

    def forward(self, x):
        global forwards
        forwards += 1
        return x + self.drop(torch.relu(self.mix(self.norm(x))))


blocks = nn.ModuleList(Block() for _ in range(3))
optimizer = torch.optim.Adagrad(blocks.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(4, 6, requires_grad=True)
    for block, reentrant in zip(blocks, (False, True, False)):
        x = checkpoint(block, x, use_reentrant=reentrant)
    loss = checkpoint_sequential(nn.Sequential(*blocks), 2, x, use_reentrant=False).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, forwards, loss.item().hex())
# says that use_reentrant should be given, and where
checkpoint(blocks[0], torch.randn(2, 6, requires_grad=True)).sum().backward()
print(sum(p.double().sum() for p in blocks.parameters()).item().hex(), torch.rand(()).item().hex())
