"""A program whose path has spaces and letters beyond ASCII."""

import sys

import torch

print(ascii(__file__), ascii(sys.argv), ascii(sys.path[0]))
weight = torch.ones(3, requires_grad=True)
(weight * torch.arange(3.0)).sum().backward()
print(weight.grad.tolist())
raise ValueError("dans l'été")
