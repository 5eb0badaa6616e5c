"""What a tensor tells of itself: references, versions, shared memory, its graph and hooks."""

import sys

import torch

torch.manual_seed(0)
x = torch.randn(3, 3, requires_grad=True)
held = {}
y = (x * 2).sigmoid()
y.register_hook(lambda slope: held.update(slope=slope))
z = y.view(9).sum()
print(sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(z))
print(x._version, y._version, x.is_leaf, y._base is None, y.view(9)._base is y, y.data_ptr() == y.view(9).data_ptr())
node, first = z.grad_fn, z.grad_fn._sequence_nr()
while node is not None:
    print(node.name(), node._sequence_nr() - first if node.name() != "torch::autograd::AccumulateGrad" else None)
    node = node.next_functions[0][0] if node.next_functions else None
z.backward()
print(sys.getrefcount(x.grad), x.grad._version, held["slope"]._version, sys.getrefcount(held["slope"]))
with torch.no_grad():
    x.add_(x.grad, alpha=-0.1)
    x[0] = 0
print(x._version, x._backward_hooks, z._backward_hooks, x.__dict__, x.grad.__dict__, type(x.grad).__mro__[1].__name__)
a = torch.arange(4.0)
b = a.numpy()
b[0] = 7
print(a.tolist(), a.untyped_storage().data_ptr() == b.ctypes.data, sys.getrefcount(a), torch.from_numpy(b)[0].item())
layer = torch.nn.Linear(2, 2)
layer(torch.ones(1, 2)).sum().backward()
print(sorted(vars(layer)), layer._forward_hooks, layer._backward_hooks, vars(layer.weight), sys.getrefcount(layer))
optimizer = torch.optim.Adam(layer.parameters())
print(sorted(vars(optimizer)), optimizer._optimizer_step_pre_hooks, sys.getrefcount(optimizer))
try:
    y.sum().backward()
    z.backward()
except RuntimeError as error:
    print(str(error)[:60])
view = torch.zeros(2, requires_grad=True).view(2)
try:
    view.requires_grad_(False)
except RuntimeError as error:
    print(str(error)[:60])
