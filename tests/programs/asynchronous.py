"""A training loop in coroutines, its batches from generators, its step a context variable."""

import asyncio
import contextvars

import torch

step = contextvars.ContextVar("step", default=-1)
torch.manual_seed(0)


def batches(n):
    for i in range(n):
        yield i, torch.randn(4, 3)
    return "that was all"


async def produce(queue):
    source = batches(4)
    while True:
        try:
            await queue.put(next(source))
        except StopIteration as stop:
            return await queue.put((stop.value, None))


async def train(queue, model, optimizer):
    while (item := await queue.get())[1] is not None:
        step.set(item[0])
        optimizer.zero_grad()
        loss = model(item[1]).logsumexp(0).mean()
        loss.backward()
        await asyncio.sleep(0)
        optimizer.step()
        print(step.get(), loss.item().hex())
    return item[0]


async def main():
    queue = asyncio.Queue(1)
    models = [torch.nn.Linear(3, 2) for _ in range(2)]
    tasks = [train(queue, m, torch.optim.NAdam(m.parameters())) for m in models[:1]]
    print(await asyncio.gather(produce(queue), *tasks))
    print(await asyncio.to_thread(lambda: models[1](torch.ones(1, 3)).sum().item().hex()))


asyncio.run(main())
print(step.get())
