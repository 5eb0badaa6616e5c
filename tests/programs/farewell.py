"""The order in which everything is said at the end."""

import atexit
import gc
import sys
import threading
import weakref


class Said:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("del", self.name, flush=True)


atexit.register(print, "atexit 1")
kept = Said("global")
gone = Said("reference")
del gone
cycle = Said("cycle")
cycle.me = cycle
del cycle
print("collected", gc.collect() > 0)

if "torch" in sys.argv:
    import torch

    class Model(torch.nn.Linear):
        def __del__(self):
            print("del model", flush=True)

    model = Model(3, 2)
    out = model(torch.ones(2, 3)).sum()
    out.backward()
    alive = [weakref.ref(o) for o in (model, out, model.weight, model.weight.grad)]
    tensors = [torch.ones(3) for _ in range(4)]
    alive += [weakref.ref(t, lambda _: print("tensor gone")) for t in tensors]
    for t in tensors:
        t.mul_(2)
    del t, tensors
    del model
    print("deleted", [r() is None for r in alive])
    del out
    print("collected", gc.collect() >= 0, [r() is None for r in alive])
    last = Model(1, 1)

finalizer = weakref.finalize(kept, print, "finalized")
atexit.register(print, "atexit 2")
threading.Thread(target=lambda: (threading.main_thread().join(), print("thread after main"))).start()
print("the end")
