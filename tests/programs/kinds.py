"""Tensors of every kind: sparse, complex, quantised, nested, meta, integer, empty, named, subclassed."""

import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Metres(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out.as_subclass(Metres) if isinstance(out, torch.Tensor) else out


def show(name, tensor):
    print(name, tensor)


dense = torch.randn(3, 3).relu().requires_grad_()
sparse = dense.to_sparse()
show("sparse", torch.sparse.mm(sparse, torch.ones(3, 1)))
torch.sparse.sum(sparse).backward()
show("gradient", dense.grad)
show("csr", dense.detach().to_sparse_csr() @ torch.ones(3))
table = torch.nn.Embedding(6, 2, sparse=True)
sparse_adam = torch.optim.SparseAdam(table.parameters())
table(torch.tensor([1, 4, 4])).sum().backward()
sparse_adam.step()
show("embedding", table.weight.grad.coalesce())
wave = torch.fft.rfft(torch.sin(torch.arange(8.0)).requires_grad_())
wave.abs().sum().backward()
show("complex", torch.view_as_real(wave.detach() * 1j).sum())
show("quantised", torch.quantize_per_tensor(torch.tensor([0.1, 0.7]), 0.1, 10, torch.quint8).int_repr())
scale = torch.tensor([0.1], requires_grad=True)
learnt = torch._fake_quantize_learnable_per_tensor_affine(dense, scale, torch.zeros(1), -8, 7, 1.0)
learnt.sum().backward()
show("fake quantised", scale.grad)
nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
show("nested", torch.nn.Linear(3, 1, bias=False)(nested).shape[0])
show("meta", torch.nn.Linear(1000, 1000, device="meta")(torch.empty(2, 1000, device="meta")).shape)
show("integers", torch.arange(4, dtype=torch.uint8) - 3)
show("booleans", torch.tensor([True, False]).logical_not().any())
show("empty", torch.empty(0, 3).sum(0))
show("subclass", type(Metres([1.0, 2.0]).mul(2).sum()).__name__)
show("half", torch.full((3,), 3e-5, dtype=torch.float16).square() + torch.finfo(torch.float16).tiny)
show("eighth", torch.tensor([1.5, 300.0]).to(torch.float8_e4m3fn).float())
show("parameters", torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.ones(1))}))
show("string", [torch.ones(1).dtype, torch.device("cpu"), torch.Size([1]), torch.ones(2).layout])
