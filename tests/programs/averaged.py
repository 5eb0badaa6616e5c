"""Averaged weights, pruning, tied and frozen parameters, parameters replaced in the midst."""

import torch
from torch import nn
from torch.nn.utils import prune
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

torch.manual_seed(0)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.out = nn.Embedding(7, 4), nn.BatchNorm1d(4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.embed.weight
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, tokens):
        return self.out(self.norm(self.embed(tokens)) * self.frozen)


model = Tied()
average = AveragedModel(model)
optimizer = torch.optim.Adamax(model.parameters(), lr=0.05)
schedule = SWALR(optimizer, swa_lr=0.01)
data = [torch.randint(7, (8,)) for _ in range(4)]
for step, tokens in enumerate(data):
    optimizer.zero_grad(set_to_none=bool(step % 2))
    loss = nn.functional.cross_entropy(model(tokens), tokens.roll(1))
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    average.update_parameters(model)
    schedule.step()
    print(step, loss.item().hex())
update_bn(data, average)
print(average.module.norm.running_mean.sum().item().hex(), average.n_averaged.item())
prune.l1_unstructured(model.norm, "weight", 0.5)
print(model(data[0]).sum().item().hex(), model.norm.weight_mask.tolist())
prune.remove(model.norm, "weight")
model.embed.weight.data = torch.zeros(7, 4)
print(model(data[0]).abs().sum().item(), [n for n, _ in model.named_parameters()])
state = {k: v.clone() for k, v in average.module.state_dict().items()}
print(model.load_state_dict(state), model.out.weight is model.embed.weight)
