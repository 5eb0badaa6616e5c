"""A heteroscedastic regression, evaluated with an exponential moving average of its weights."""
# step: 14
# element: [2]
# birth: invalid

import copy

import torch
from torch import nn


class Heteroscedastic(nn.Module):
    """A linear mean, and one standard deviation for each output."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mean = nn.Linear(inputs, outputs)
        self.scale = nn.Parameter(torch.full((outputs,), 0.5))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_scale = torch.log(self.scale)  # born
        residual = (y - self.mean(x)) / self.scale
        return (log_scale + 0.5 * residual.square()).mean()


@torch.no_grad()
def update_ema(ema: nn.Module, model: nn.Module, decay: float = 0.95) -> None:
    for average, weight in zip(ema.parameters(), model.parameters(), strict=True):
        average.lerp_(weight, 1 - decay)


torch.manual_seed(9)
inputs = torch.randn(100, 4)
outputs = inputs @ torch.randn(4, 3)
outputs[:, 2] = 0.0  # a target that is always the same

model = Heteroscedastic(4, 3)
nn.init.normal_(model.mean.weight, std=0.01)
nn.init.zeros_(model.mean.bias)
ema = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam([{"params": model.mean.parameters(), "lr": 1e-3}, {"params": [model.scale]}], lr=0.04)

for step in range(1, 21):
    rows = torch.randint(len(inputs), (10,))
    optimizer.zero_grad()
    loss = model(inputs[rows], outputs[rows])
    loss.backward()
    optimizer.step()
    update_ema(ema, model)
    print(step, repr(loss.item()))
