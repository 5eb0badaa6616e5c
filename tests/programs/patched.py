"""What a program sees of torch's own functions, and functions of torch that it replaces itself."""

import inspect
import threading

import torch

for thing in (
    torch.save,
    torch.load,
    torch.compile,
    torch.autograd.backward,
    torch.autograd.grad,
    torch.nn.Module.__call__,
    torch.Tensor.backward,
    torch.optim.SGD.step,
    torch.optim.Optimizer.zero_grad,
    threading.Thread.start,
    threading.Thread.run,
    torch.utils.swap_tensors,
    torch.Tensor.__array__,
    torch.utils.checkpoint.checkpoint,
):
    first = next(line.strip() for line in inspect.getsourcelines(thing)[0] if "def " in line)
    print(thing.__name__, [*inspect.signature(thing).parameters], first)
for name in ("tolist", "numpy", "__array__", "item", "add_", "detach", "__dlpack__"):
    print(name, inspect.isroutine(getattr(torch.Tensor, name)), callable(getattr(torch.ones(1), name)))

saves, calls = [], []
save, call = torch.save, torch.nn.Module.__call__


def my_save(obj, *args, **kwargs):
    saves.append(type(obj).__name__)
    return save(obj, *args, **kwargs)


def my_call(self, *args, **kwargs):
    calls.append(type(self).__name__)
    return call(self, *args, **kwargs)


torch.save, torch.nn.Module.__call__ = my_save, my_call
torch.save(torch.ones(1), "saved.pt")
torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(1, 1))(torch.ones(1, 1))
print(saves, calls, torch.save is my_save, torch.nn.Module.__call__ is my_call)
torch.nn.Module.__call__ = call
torch.Tensor.backward = lambda self: print("no backward")
torch.ones(1, requires_grad=True).sum().backward()
forward = torch.nn.Linear.forward
torch.nn.Linear.forward = lambda self, x: forward(self, x) * 2
print(torch.nn.Linear(2, 1, bias=False)(torch.zeros(1, 2)).tolist())
