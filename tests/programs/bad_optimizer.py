"""Meant to be bad: Adam without an epsilon divides 0 by 0 where a gradient is 0."""

import torch

layer = torch.nn.Linear(2, 1)
torch.nn.init.ones_(layer.weight)
optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, eps=0.0)
for step in range(2):
    optimizer.zero_grad()
    layer(torch.tensor([[1.0, 0.0]])).sum().backward()
    optimizer.step()
    print(step, layer.weight.tolist(), flush=True)
