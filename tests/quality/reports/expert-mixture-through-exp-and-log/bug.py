import torch
from torch import nn


class SparseDispatcher:
    """Sends each example to the experts whose gate is not zero, and puts their outputs together again."""

    def __init__(self, num_experts, gates):
        self._gates, self._num_experts = gates, num_experts
        self._expert_index, self._batch_index = torch.nonzero(gates.t(), as_tuple=True)
        self._part_sizes = (gates > 0).sum(0).tolist()
        self._nonzero_gates = gates[self._batch_index, self._expert_index].unsqueeze(1)

    def dispatch(self, inputs):
        return torch.split(inputs[self._batch_index], self._part_sizes)

    def combine(self, expert_out):
        stitched = torch.cat(expert_out, 0).exp()
        stitched = stitched.mul(self._nonzero_gates)
        zeros = torch.zeros(self._gates.size(0), expert_out[-1].size(1))
        combined = zeros.index_add(0, self._batch_index, stitched)
        combined = torch.where(combined == 0, torch.finfo(combined.dtype).eps, combined)
        return combined.log()


class MoERegressor(nn.Module):
    def __init__(self, inputs, outputs, num_experts=4, k=2, hidden=32):
        super().__init__()
        self.k = k
        self.gate = nn.Linear(inputs, num_experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs)) for _ in range(num_experts)
        )

    def forward(self, x):
        top, chosen = self.gate(x).topk(self.k, dim=1)
        gates = torch.zeros(len(x), len(self.experts)).scatter(1, chosen, torch.softmax(top, dim=1))
        dispatcher = SparseDispatcher(len(self.experts), gates)
        parts = dispatcher.dispatch(x)
        return dispatcher.combine([expert(part) for expert, part in zip(self.experts, parts)])


def house_prices(count=128):
    """Thousands per square metre out of area, age, rooms and distance."""
    area, age = 40 + 120 * torch.rand(count), 60 * torch.rand(count)
    rooms, distance = torch.randint(1, 7, (count,)).float(), 20 * torch.rand(count)
    price = 20 + 0.8 * area - 0.3 * age + 4 * rooms - distance
    return torch.stack([area, age, rooms, distance], dim=1), price.unsqueeze(1)


torch.manual_seed(1)
x, y = house_prices()
model = MoERegressor(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(40):
    for xb, yb in zip(x.split(32), y.split(32)):
        loss = nn.functional.l1_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 10 == 9:
        print(epoch, loss.item())
