"""Random numbers: seeded before torch is loaded, drawn after it and after training."""

import random

import numpy

random.seed(7)
numpy.random.seed(7)
import torch  # noqa: E402

torch.manual_seed(7)
print(random.random().hex(), float(numpy.random.rand()).hex(), torch.rand(()).item().hex(), torch.initial_seed())
generator = torch.Generator().manual_seed(7)
weight = torch.nn.Parameter(torch.empty(4, 4))
torch.nn.init.kaiming_uniform_(weight, generator=generator)
for _ in range(3):
    noise = torch.randn(4, 4, generator=generator)
    dropped = torch.nn.functional.dropout(weight @ noise, 0.5)
    dropped.sum().backward()
    print(random.gauss(0, 1).hex(), numpy.random.default_rng(1).normal().hex(), dropped.sum().item().hex())
    print(torch.randperm(5, generator=generator).tolist(), torch.bernoulli(torch.full((6,), 0.5)).tolist())
print(torch.multinomial(torch.ones(5), 3).tolist(), torch.normal(0.0, 1.0, (1,)).item().hex())
print(random.getrandbits(64), numpy.random.randint(1 << 30), torch.get_rng_state().sum().item())
print(generator.get_state().sum().item(), weight.grad.sum().item().hex())
