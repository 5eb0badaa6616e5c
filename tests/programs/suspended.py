"""Generators, context variables and coroutines that outlive their callers."""

import asyncio
import contextvars

step = contextvars.ContextVar("step", default=0)


def batches(n):
    try:
        for i in range(n):
            got = yield i
            if got:
                print("sent", got)
        return "all"
    finally:
        print("closed", n)


async def worker(name, queue, results):
    while (item := await queue.get()) is not None:
        step.set(step.get() + item)
        await asyncio.sleep(0)
        results.append((name, step.get()))


async def main():
    queue, results = asyncio.Queue(), []
    workers = [asyncio.create_task(worker(f"w{n}", queue, results)) for n in range(2)]
    for item in [*range(1, 6), None, None]:
        await queue.put(item)
    await asyncio.gather(*workers)
    print(results, step.get())
    cancelled = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    cancelled.cancel()
    print(await asyncio.gather(cancelled, return_exceptions=True))


generator = batches(3)
print(next(generator), generator.send("x"), next(generator))
try:
    next(generator)
except StopIteration as stop:
    print(stop.value)
unfinished = batches(2)
next(unfinished)
asyncio.run(main())
try:
    asyncio.run(asyncio.wait_for(asyncio.Event().wait(), 0.001))
except TimeoutError:
    print("timed out")
print("unfinished is closed after this")
