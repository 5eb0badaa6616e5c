"""A program that goes on in a grandchild, after its parent has left."""

import os
import sys
import time

import torch

torch.set_num_threads(1)
weight = torch.ones(2, requires_grad=True)
weight.sum().backward()
reader, writer = os.pipe()
if os.fork():
    sys.exit(0)
os.setsid()
if os.fork():
    os._exit(0)
parent = os.getppid()
while parent not in (0, 1) and os.getppid() == parent:
    time.sleep(0.01)
(weight * 3).sum().backward()
print("still here", weight.grad.tolist())
