"""What code that torch calls sees below it: stacks, warnings aimed at a caller, hooks' frames."""

import inspect
import warnings

import torch


def functions():
    """The stack, without whatever stands between the program and torch."""
    known = (__file__, torch.__path__[0])
    return [f.function for f in inspect.stack()[1:] if f.filename.startswith(known)]


def everything():
    """The stack, whatever stands in it, down to the program's own first frame."""
    names = [f.function for f in inspect.stack()[1:]]
    return names[: names.index("<module>") + 1]


class Layer(torch.nn.Module):
    def forward(self, x):
        for level in (1, 2, 3):
            warnings.warn(f"from level {level}", stacklevel=level)
        print("forward", functions())
        return x * 2


def hook(slope):
    print("hook", functions())
    for level in (1, 2):
        warnings.warn(f"in a hook, from level {level}", stacklevel=level)
    return slope


class Step(torch.optim.SGD):
    def step(self, closure=None):
        print("step", everything())
        warnings.warn("in a step", stacklevel=3)
        return super().step(closure)


x = torch.ones(2, requires_grad=True)
out = Layer()(x)
x.register_hook(hook)
out.sum().backward()
optimizer = Step([x], lr=0.1)
optimizer.step(lambda: print("closure", functions()) or out.sum())
schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1), 1)
schedule.step()


class Watching(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        print("dispatch", func, everything())
        return func(*args, **(kwargs or {}))


with Watching():
    torch.ones(2).add(1)
