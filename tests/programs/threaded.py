"""Training in threads: one model each, then one model for all, beside a thread that only watches."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import torch

torch.set_num_threads(1)


def fit(seed):
    drawn = torch.Generator().manual_seed(seed)
    weight = torch.randn(5, generator=drawn).requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = (weight * torch.randn(8, 5, generator=drawn)).sum(1).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item().hex()


with ThreadPoolExecutor(2, thread_name_prefix="fit") as pool:
    print(list(pool.map(fit, range(4))))

shared, lock = torch.zeros(3, requires_grad=True), threading.Lock()
results = queue.Queue()


def add(n):
    with lock:
        (shared * n).sum().backward()
    results.put(n)


threads = [threading.Thread(target=add, args=(float(n),)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(results.queue), shared.grad.tolist())


class Trainer(threading.Thread):
    def run(self):
        self.result = fit(9)


trainer = Trainer(name="trainer", daemon=True)
trainer.start()
trainer.join()
print(trainer.result, trainer.name, threading.active_count())
timer = threading.Timer(0.01, lambda: print(fit(10)))
timer.start()
