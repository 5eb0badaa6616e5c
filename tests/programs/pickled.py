"""What goes through pickle and copy: the program's own classes, torch's functions, tensors, whole models."""

import copy
import functools
import io
import pickle
import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.act = functools.partial(nn.functional.relu, inplace=False)

    def forward(self, x):
        return self.act(self.layer(x))


def double(x):
    return 2 * x


torch.manual_seed(0)
model = Net()
model(torch.ones(1, 2)).sum().backward()
optimizer = torch.optim.Adam(model.parameters())
optimizer.step()
for thing in (
    Net,
    double,
    torch.save,
    torch.load,
    torch.compile,
    torch.autograd.backward,
    nn.functional.relu,
    nn.Module.__call__,
    nn.Linear.forward,
    functools.partial(torch.save, pickle_protocol=2),
    torch.Tensor.numpy,
    torch.Tensor.tolist,
    torch.Tensor.add,
    torch.Tensor.__array__,
    torch.full,
    torch.empty,
    torch.optim.SGD,
    torch.float32,
    nn.Module,
    torch.tensor,
    torch.from_numpy,
    torch.utils.swap_tensors,
    torch.nn.functional.softmax,
    torch.as_tensor,
):
    again = pickle.loads(pickle.dumps(thing))
    print(getattr(thing, "__name__", "partial"), again is thing, again == thing)
again = pickle.loads(pickle.dumps(model))
print(type(again).__module__, again(torch.ones(1, 2)).tolist() == model(torch.ones(1, 2)).tolist())
copied, adam = copy.deepcopy((model, optimizer))
print(copied.layer.weight.equal(model.layer.weight), adam.param_groups[0]["params"][0] is copied.layer.weight)
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "whole": Net}, file)
file.seek(0)
state = torch.load(file, weights_only=False)
print(sorted(state), state["whole"] is Net, len(file.getvalue()) > 1000)
print(copy.deepcopy(torch.ones(2, requires_grad=True)), sorted(k for k in vars(model) if "whynan" in k))
print(len(pickle.dumps(model)), len(pickle.dumps(optimizer)), sys.getsizeof(model.__dict__) > 0)
