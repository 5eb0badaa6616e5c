"""A compiled mixture of experts, whose gate is a softmax written by hand."""
# step: 11
# element: [6, 1]
# birth: overflow

import torch
from torch import nn


class Mixture(nn.Module):
    def __init__(self, inputs: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(inputs, experts)
        self.experts = nn.Linear(inputs, experts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.gate(x)
        unnormalised = scores.exp()  # born
        weights = unnormalised / unnormalised.sum(dim=-1, keepdim=True)
        return (weights * self.experts(x)).sum(dim=-1)


def main() -> None:
    torch.manual_seed(31)
    x = torch.randn(13, 8, 6)
    y = x.abs().sum(dim=-1)
    x[10, 6] *= 2000  # one row that was not normalised

    model = Mixture(6, 4)
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for i in range(x.shape[0]):
        optimizer.zero_grad()
        prediction = compiled(x[i])
        loss = nn.functional.mse_loss(prediction, y[i])
        loss.backward()
        optimizer.step()
        print(i + 1, repr(loss.item()))


if __name__ == "__main__":
    main()
