"""Work in other processes: spawned, forked, from a fork server; the first argument says how."""

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

if "torch" in sys.argv:
    import torch

    torch.set_num_threads(1)


def square(n):
    if "torch" in sys.argv:
        return torch.full((3,), float(n), requires_grad=True).square().sum().item()
    return n * n


def tell(queue):
    queue.put((__name__, multiprocessing.current_process().name, "_WHYNAN_RUN" in os.environ, sys.argv))


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print(pool.map(square, range(5)))
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        print(list(executor.map(square, range(3))))
    queue = context.Queue()
    child = context.Process(target=tell, args=(queue,), name="child")
    child.start()
    print(queue.get())
    child.join()
    leaver = context.Process(target=os._exit, args=(9,))
    leaver.start()
    leaver.join()
    print(child.exitcode, leaver.exitcode)
