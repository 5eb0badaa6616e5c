"""Meant to be bad: an infinite loss whose gradients are left behind, then an exit status of the program's own."""

import sys

import torch

weight = torch.full((3,), 50.0, requires_grad=True)
loss = (weight * 2).exp().sum()
loss.backward()
print(loss.item(), flush=True)
sys.exit(5)
