"""PyTorch's own profiler, its words on the error stream aside, and memory it counts."""

import os

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

kept = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
seen = []
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=2),
    record_shapes=True,
    on_trace_ready=lambda p: seen.extend(
        sorted({e.key for e in p.key_averages() if e.key in ("aten::cumsum", "aten::flip", "a step")})
    ),
) as profiler:
    weight = torch.ones(4, requires_grad=True)
    for _ in range(4):
        with record_function("a step"):
            (weight * torch.arange(4.0)).cumsum(0).sum().backward()
        profiler.step()
os.dup2(kept, 2)
print(seen, weight.grad.tolist())
