"""Meant to be bad: the logarithm of a probability that is 0 reaches the weights, and nobody looks."""

import torch

torch.manual_seed(0)
weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(4):
    probability = (weight * torch.tensor([0.5, 0.2, 1.0 - (step > 1)])).sigmoid() * torch.tensor([1, 1, step < 2])
    loss = -(probability.log()).mean()
    optimizer.zero_grad()
    loss.backward()
    print(step, loss.item(), flush=True)
    optimizer.step()
print("trained", weight.tolist())
