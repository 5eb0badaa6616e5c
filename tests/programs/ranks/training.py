"""A small training of several ranks, by DDP, by FSDP2 or by hand; with a number, rank 0's loss is bad at that step."""

import gc
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
way, bad = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
if way in ("replicas", "scaled"):
    model = DistributedDataParallel(model)
if way == "shards":
    mesh = init_device_mesh("cpu", (world,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaled = way == "scaled"
# the first step overflows, and is skipped
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-100, enabled=scaled)
torch.manual_seed(rank)
lines = []
for step in range(5):
    optimizer.zero_grad()
    x = torch.randn(4, 8)
    if way == "statistics":
        total = x.sum(0)
        dist.all_reduce(total)
        x = x - total / (4 * world)
    out = model(x)
    loss = out.square().mean() * (64 if scaled else 1)
    if step == bad and rank == 0:
        spread = (out - out).sum()
        loss = loss + spread.sqrt()
    scaler.scale(loss).backward()
    if way == "statistics":
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    scaler.step(optimizer)
    scaler.update()
    lines.append(f"{loss.item().hex()} {mean.item().hex()}")
for parameter in model.parameters():
    local = parameter.to_local() if way == "shards" else parameter
    lines.append(local.detach().double().sum().item().hex())
with open(f"said.{rank}", "w") as file:
    file.write("\n".join(lines))
# gloo joins its threads once nothing holds the group; one that lives on may meet Python's end, and abort the process
del model, optimizer, parameter, local, loss, mean, out, x
gc.collect()
dist.destroy_process_group()
