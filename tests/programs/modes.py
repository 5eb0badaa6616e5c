"""Modes of the program's own: dispatch, function, saved tensors, anomaly, default dtype and device, determinism."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

torch.manual_seed(0)
names = []


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        names.append(str(func))
        return func(*args, **(kwargs or {}))


class Called(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        names.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


layer = torch.nn.Linear(3, 2)
with Dispatched():
    layer(torch.ones(1, 3)).logsumexp(1).sum().backward()
print(names)
names.clear()
with Called():
    layer(torch.ones(1, 3)).relu().sum().item()
print(names)
optimizer = torch.optim.Adam(layer.parameters())
for _ in range(4):
    names.clear()
    with Called():
        loss = layer(torch.ones(1, 3)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item(), names)
with torch.autograd.graph.saved_tensors_hooks(lambda t: (names.append("pack"), t)[1], lambda t: t):
    layer(torch.ones(1, 3)).square().sum().backward()
print(names.count("pack"))
with torch.autograd.detect_anomaly(check_nan=True):
    layer(torch.ones(1, 3)).exp().sum().backward()
with torch.random.fork_rng():
    torch.manual_seed(5)
    print(torch.rand(()).item().hex())
torch.set_default_dtype(torch.float64)
print(torch.rand(2).dtype, torch.nn.Linear(1, 1)(torch.ones(1)).dtype)
torch.use_deterministic_algorithms(True)
print(torch.empty(2).isnan().all().item(), torch.are_deterministic_algorithms_enabled())
torch.use_deterministic_algorithms(False)
with torch.device("meta"):
    print(torch.nn.Linear(4, 4).weight.device)
with torch.autograd.set_multithreading_enabled(False):
    torch.ones(3, requires_grad=True).prod().backward()
print(torch.rand(()).item().hex())
