"""Small trainings of several ranks, one of each kind; with ``bad`` a number goes bad on one of them.

The line that bears it has the comment ``born KIND``, the one that brings it to the others ``sent KIND``.
"""

import gc
import math
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
KIND, BAD, STEPS = sys.argv[1], "bad" in sys.argv, 5
WHEN = 0 if "first" in sys.argv else 3


def root(x):
    return x - x


def small():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def replicas():
    model = DistributedDataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean()
        if BAD and step == WHEN and rank == 1:
            loss = loss + root(loss).sqrt()  # born replicas
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def accumulation():
    model = DistributedDataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        with model.no_sync():
            loss = model(torch.randn(4, 8)).square().mean()
            if BAD and step == WHEN and rank == 0:
                loss = loss + root(loss).sqrt()  # born accumulation
            loss.backward()
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def sums():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean()
        if BAD and step == WHEN and rank == 1:
            loss = loss + root(loss).sqrt()  # born sums
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # sent sums
            parameter.grad /= world
        optimizer.step()
        lines.append(loss.item().hex())


def later_sums():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean()
        if BAD and step == WHEN and rank == 1:
            loss = loss + root(loss).sqrt()  # born later_sums
        optimizer.zero_grad()
        loss.backward()
        for work in [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]:  # sent later_sums
            work.wait()
        optimizer.step()
        lines.append(loss.item().hex())


def statistics():
    """The value that goes bad does no harm on the rank that bears it."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        x = torch.randn(4, 8)
        scale = torch.ones(1)
        if rank == 0:
            spread = x.square().sum() * (0 if BAD and step == WHEN else 1)
            scale = 1 + spread / spread  # born statistics
        dist.broadcast(scale, 0)  # sent statistics
        loss = model(x).square().mean()
        if rank == 1:
            loss = loss * scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def contrast():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        out = model(torch.randn(4, 8))
        if BAD and step == WHEN and rank == 1:
            out = out / root(out).abs().sum()  # born contrast
        gathered = [torch.zeros_like(out) for _ in range(world)]
        dist.all_gather(gathered, out.detach().contiguous())  # sent contrast
        loss = (out @ torch.cat(gathered).T).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def pipeline():
    torch.manual_seed(0)
    stage = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        if rank == 0:
            out = stage(torch.randn(4, 8)).tanh()
            if BAD and step == WHEN:
                out = out / root(out)  # born pipeline
            dist.send(out.detach(), 1)
            gradient = torch.empty(4, 8)
            dist.recv(gradient, 1)
            out.backward(gradient)
            lines.append(out.detach().sum().item().hex())
        else:
            came = torch.empty(4, 8)
            dist.recv(came, 0)  # sent pipeline
            came.requires_grad_()
            loss = stage(came).square().mean()
            loss.backward()
            dist.send(came.grad, 0)
            lines.append(loss.item().hex())
        optimizer.step()


def evaluation():
    """The first rank evaluates while the other waits at a barrier."""
    model = DistributedDataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step == WHEN:
            with torch.no_grad():
                out = small()(torch.randn(4, 8))
                error = out.sum() / (0 if BAD else 1) - out.sum() / (0 if BAD else 1)  # born evaluation
            if BAD and torch.isnan(error):
                raise RuntimeError("the error is NaN")
        dist.barrier()
        lines.append(loss.item().hex())


def half_sums():
    """What every rank puts in is finite, and the sum is not."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            size = 40_000 if BAD and step == WHEN else 1
            half = torch.full_like(parameter.grad, size).half()
            dist.all_reduce(half)  # born half_sums
            parameter.grad.copy_(half)
        optimizer.step()
        lines.append(loss.item().hex())


def compressed():
    model = DistributedDataParallel(small())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    torch.manual_seed(rank)
    for step in range(STEPS):
        size = 1e8 if BAD and step == WHEN and rank == 1 else 1
        loss = model(torch.randn(4, 8)).square().mean() * size  # born compressed
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


class Slow(Dataset):
    def __len__(self):
        return 4 * STEPS

    def __getitem__(self, index):
        # where the first rank is bad, the other waits for this
        time.sleep(30 if BAD and rank == 1 and index >= 4 * (WHEN + 1) else 0)
        return torch.full((8,), float(index % 3))


def loader():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, x in enumerate(DataLoader(Slow(), batch_size=4, num_workers=1)):
        loss = model(x).square().mean()
        if BAD and step == WHEN and rank == 0:
            time.sleep(1)
            loss = loss + root(loss).sqrt()  # born loader
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def scaler():
    """The scale falls on one rank alone: each has a scaler of its own."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scale = torch.amp.GradScaler("cpu", init_scale=2.0 ** (127 if rank == 1 else 4), backoff_factor=2.0**-60)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean() * 64
        if BAD and step == WHEN and rank == 0:
            loss = loss + root(loss).log().exp().log()  # born scaler
        optimizer.zero_grad()
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()
        lines.append(loss.item().hex())


def masked():
    """A bad number that does no harm, on one rank."""
    model = DistributedDataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        out = model(torch.randn(4, 8))
        odd = torch.zeros(4) / torch.tensor([0.0, 1.0, 1.0, 1.0])
        loss = out.square().mean() + odd[1:].sum() * rank
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def uneven():
    """One rank has more steps than the other, and a longer end."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for _ in range(STEPS + 20 * rank):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())
        time.sleep(0.05)


def joined():
    """One rank has more batches than the other, which joins it in its sums."""
    model = DistributedDataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    with model.join():
        for step in range(STEPS + 2 * rank):
            loss = model(torch.randn(4, 8)).square().mean()
            if BAD and step == WHEN + 2 and rank == 1:
                loss = loss + root(loss).sqrt()  # born joined
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            lines.append(loss.item().hex())


def local_steps():
    """Gradients are summed at first, and weights averaged later."""
    model = DistributedDataParallel(small())
    state = post_localSGD_hook.PostLocalSGDState(None, dist.new_subgroups(1)[0], start_localSGD_iter=2)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = PostLocalSGDOptimizer(inner, PeriodicModelAverager(period=2, warmup_steps=2))
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean()
        if BAD and step == WHEN and rank == 1:
            loss = loss + root(loss).sqrt()  # born local_steps
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def gathered():
    """Each rank evaluates its part, and the first one looks at them all."""
    model = DistributedDataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            score = model.module(torch.randn(4, 8)).square().mean()
            if BAD and step == WHEN and rank == 1:
                score = score / root(score) - score / root(score)  # born gathered
        scores = [torch.zeros(()) for _ in range(world)] if rank == 0 else None
        dist.gather(score, scores)  # sent gathered
        if rank == 0 and not math.isfinite(sum(scores).item()):
            raise RuntimeError("a score is NaN")
        lines.append(loss.item().hex())


def redundancy():
    """Each rank keeps and moves a part of the weights."""
    model = DistributedDataParallel(small())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean()
        if BAD and step == WHEN and rank == 0:
            loss = loss + root(loss).sqrt()  # born redundancy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def experts():
    """Each rank has an expert, and sends the others what is theirs."""
    torch.manual_seed(0)
    gate, expert = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD([*gate.parameters(), *expert.parameters()], lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        tokens = gate(torch.randn(2 * world, 8)).tanh()
        if BAD and step == WHEN and rank == 0:
            tokens = tokens / root(tokens)  # born experts
        came = torch.empty(2 * world, 8)
        dist.all_to_all_single(came, tokens.detach())  # sent experts
        loss = expert(came).square().mean() + tokens[: 1 + rank].square().mean() * rank
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def stages():
    """A pipeline of two parts of a batch, whose numbers are under way while others are computed."""
    torch.manual_seed(0)
    stage = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        if rank == 0:
            outs = [stage(torch.randn(4, 8)).tanh() for _ in range(2)]
            works = [dist.isend(out.detach(), 1, tag=n) for n, out in enumerate(outs)]
            gradients = [torch.empty(4, 8) for _ in outs]
            for n, (out, gradient) in enumerate(zip(outs, gradients)):
                dist.irecv(gradient, 1, tag=2 + n).wait()  # sent stages
                out.backward(gradient)
            [work.wait() for work in works]
            lines.append(sum(outs).detach().sum().item().hex())
        else:
            came = [torch.empty(4, 8) for _ in range(2)]
            works = [dist.irecv(one, 0, tag=n) for n, one in enumerate(came)]
            for n, (one, work) in enumerate(zip(came, works)):
                work.wait()
                one.requires_grad_()
                loss = stage(one).square().mean()
                if BAD and step == WHEN and n == 1:
                    loss = loss + root(loss).sqrt()  # born stages
                loss.backward()
                dist.send(one.grad, 0, tag=2 + n)
                lines.append(loss.item().hex())
        optimizer.step()


def mesh():
    """Weights in parts over some ranks, and alike over the others."""
    model = small()
    ranks = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("alike", "parts"))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean()
        if BAD and step == WHEN and rank == 1:
            loss = loss + root(loss).sqrt()  # born mesh
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def shards():
    """Weights in parts, computed with in half precision."""
    model = small()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=init_device_mesh("cpu", (world,)), mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).float().square().mean()
        if BAD and step == WHEN and rank == 1:
            loss = loss + root(loss).sqrt()  # born shards
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


def parts():
    """Weights in parts, whose optimizer divides by nothing else than the gradient of the last row, which is 0."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 6)
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=0.0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.rand(4, 4))[:, : 5 if BAD else 6].square().mean()
        loss.backward()
        optimizer.step()  # born parts
        lines.append(loss.item().hex())


def low_rank():
    model = DistributedDataParallel(small())
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.5)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        loss = model(torch.randn(4, 8)).square().mean()
        if BAD and step == WHEN and rank == 1:
            loss = loss + root(loss).sqrt()  # born low_rank
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(loss.item().hex())


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
lines = []
globals()[KIND]()
# in one piece: both ranks write to one stream
print(f"rank {rank}: {' '.join(lines)}\n", end="", flush=True)
with open(f"said.{rank}", "w") as file:
    file.write("\n".join(lines))
# gloo joins its threads once nothing holds the group
gc.collect()
dist.destroy_process_group()
