"""torch.func: gradients per sample, forward mode, Hessians, an ensemble in one call."""

import torch
from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vmap

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
params = {name: p.detach() for name, p in model.named_parameters()}
inputs, targets = torch.randn(6, 3), torch.randn(6, 1)


def loss(params, x, y):
    return (functional_call(model, params, (x,)) - y).square().mean()


def show(name, tensor):
    print(name, tuple(tensor.shape), tensor.double().sum().item().hex())


for name, each in vmap(grad(loss), (None, 0, 0))(params, inputs, targets).items():
    show(name, each)
show("hessian", hessian(lambda x: model(x).sum())(inputs[0]))
show("jacrev", jacrev(model)(inputs[0]))
out, tangent = jvp(model, (inputs,), (torch.ones_like(inputs),))
show("jvp", tangent)
ensemble = [torch.nn.Linear(3, 2) for _ in range(4)]
stacked, buffers = stack_module_state(ensemble)
show(
    "ensemble", vmap(lambda p, b, x: functional_call(ensemble[0], (p, b), (x,)), (0, 0, None))(stacked, buffers, inputs)
)
show("jacobian", torch.autograd.functional.jacobian(model, inputs[:1]))
print(torch.autograd.gradcheck(lambda x: x.sin().cumsum(0), torch.randn(3, dtype=torch.float64, requires_grad=True)))
