"""Every collective of torch.distributed, waited for at once and later; with `bad`, rank 0 puts NaN and Inf in."""

import hashlib
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
bits = hashlib.sha256()
lines = []


def fresh(*shape):
    made = torch.randn(*shape)
    if "bad" in sys.argv and rank == 0:
        made.view(-1)[0], made.view(-1)[1] = float("nan"), float("inf")
    return made


def say(name, *tensors):
    for tensor in tensors:
        bits.update(bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()))
    lines.append(f"{name} {bits.hexdigest()[:16]}")


def parts(*shape):
    return [fresh(*shape) for _ in range(world)]


def every(later):
    def call(name, begin, *given):
        work = begin()
        if later:
            work.wait()
        # read by an operation, as a program does
        say(name, *(tensor * 2 for tensor in given))

    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        one = fresh(33)
        call("all_reduce", lambda one=one, op=op: dist.all_reduce(one, op, async_op=later), one)
    one = fresh(5)
    call("reduce", lambda: dist.reduce(one, 0, async_op=later), *([one] if rank == 0 else []))
    call("broadcast", lambda: dist.broadcast(one, 1, async_op=later), one)
    many = [torch.empty(4) for _ in range(world)]
    call("all_gather", lambda: dist.all_gather(many, fresh(4), async_op=later), *many)
    whole, part = torch.empty(world * 4), torch.empty(4)
    call("all_gather_into", lambda: dist.all_gather_into_tensor(whole, fresh(4), async_op=later), whole)
    call("reduce_scatter", lambda: dist.reduce_scatter(part, parts(4), async_op=later), part)
    call("reduce_scatter_tensor", lambda: dist.reduce_scatter_tensor(part, fresh(world * 4), async_op=later), part)
    call("all_to_all_single", lambda: dist.all_to_all_single(whole, fresh(world * 4), async_op=later), whole)
    gathered = many if rank == 0 else None
    call("gather", lambda: dist.gather(fresh(4), gathered, 0, async_op=later), *(gathered or []))
    scattered = parts(4) if rank == 0 else None
    call("scatter", lambda: dist.scatter(part, scattered, 0, async_op=later), part)
    call("barrier", lambda: dist.barrier(async_op=later))
    if later:
        sent = fresh(4)
        call("isend", lambda: dist.isend(sent, 1) if rank == 0 else dist.irecv(part, 0), part)
    else:
        call("send", lambda: dist.send(fresh(4), 1) if rank == 0 else dist.recv(part), part)


every(False)
every(True)
received = torch.empty(3)
exchange = [dist.P2POp(dist.isend, fresh(3), 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
for work in dist.batch_isend_irecv(exchange):
    work.wait()
say("batched", received + 1)
dist.monitored_barrier()
objects = [None] * world
dist.all_gather_object(objects, rank)
coalesced = [fresh(3), fresh(2)]
dist.all_reduce_coalesced(coalesced)
say("coalesced", *(tensor.exp() for tensor in coalesced))
say("functional", functional.all_reduce(fresh(4), "sum", dist.group.WORLD) + 0)
say("functional", functional.all_gather_tensor(fresh(2), 0, dist.group.WORLD) + 0)
say("functional", functional.reduce_scatter_tensor(fresh(4), "sum", 0, dist.group.WORLD) + 0)

mesh = init_device_mesh("cpu", (world,))
torch.manual_seed(5)
weight = distribute_tensor(torch.randn(4, 6), mesh, [Shard(0)]).requires_grad_()
other = distribute_tensor(torch.randn(6, 4), mesh, [Shard(1)])
optimizer = torch.optim.Adam([weight], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = (weight @ other).redistribute(mesh, [Replicate()]).square().mean() + weight.sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    optimizer.step()
    say("sharded", loss.detach().full_tensor(), weight.grad.to_local(), weight.to_local())
with open(f"said.{rank}", "w") as file:
    file.write("\n".join([*lines, str(objects)]))
dist.destroy_process_group()
