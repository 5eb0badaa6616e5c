"""Gradients written by hand, hooks of every kind, and what they raise."""

import sys
import traceback

import torch
from torch import nn


class Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low):
        ctx.save_for_backward(x)
        ctx.low = low
        return x.clamp(min=low)

    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        if not ctx.needs_input_grad[0] or ctx.low > 100:
            raise ArithmeticError(f"low is {ctx.low}")
        return slope * (x > ctx.low), None


class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        if x.shape[0] > 3:
            raise ValueError("too many rows")
        return self.layer(x)


def attempt(act):
    try:
        act()
    except Exception:
        traceback.print_exc()


def refuse(*_):
    raise PermissionError("a hook refuses")


torch.manual_seed(0)
x, model, seen = torch.randn(3, 2, requires_grad=True), nn.Sequential(Picky(), nn.ReLU()), []
Clamped.apply(x, 0.0).square().sum().backward()
print([v.hex() for v in x.grad.flatten().tolist()])
handles = [
    model.register_forward_pre_hook(lambda m, args: seen.append("before")),
    model.register_forward_hook(lambda m, args, out: seen.append("after") or out * 1),
    model.register_full_backward_hook(lambda m, gin, gout: seen.append("backward")),
    x.register_hook(lambda slope: slope * 2),
    x.register_post_accumulate_grad_hook(lambda t: seen.append("accumulated")),
]
loss = model(x).sum()
loss.grad_fn.register_hook(lambda gin, gout: seen.append(loss.grad_fn.name()))
loss.backward()
print(seen, [v.hex() for v in x.grad.flatten().tolist()])
attempt(lambda: model(torch.ones(5, 2)))
attempt(lambda: model(torch.ones(3, 7)))
attempt(lambda: Clamped.apply(x, 200.0).sum().backward())
attempt(lambda: loss.backward())
attempt(lambda: torch.ones(2) + torch.ones(3))
attempt(lambda: torch.save(lambda: 0, "never.pt"))
attempt(lambda: x.numpy())
attempt(lambda: torch.ones(2, 2).item())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
attempt(lambda: optimizer.step(refuse))
optimizer.register_step_pre_hook(refuse)
attempt(optimizer.step)
model.register_forward_hook(refuse)
attempt(lambda: model(x.detach()))
handles[2].remove()
x.register_hook(refuse)
sys.stdout.flush()
model[0](x).sum().backward()
