"""Meant to be bad: an infinite loss, then an exit status of the program's own."""

import sys

import torch

out = torch.nn.Linear(2, 2)(torch.full((1, 2), 1e30)).square().exp().sum()
print(out.item())
sys.exit(5)
