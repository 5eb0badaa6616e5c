"""A demand curve fitted by L-BFGS with a closure, one batch of days a step, to relative errors."""
# step: 10
# element: [5]
# birth: pole

import torch
from torch import nn


def relative_error(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    error = (prediction - target) / target  # born
    return error.square().mean()


def main() -> None:
    torch.manual_seed(17)
    prices = torch.rand(15, 8, 2) + 0.5
    demand = (12 - 4 * prices[..., 0] + prices[..., 1]).round()
    demand[9, 5] = 0.0  # the shop was closed

    model = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=5)

    for day in range(len(prices)):
        features, target = prices[day], demand[day]

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = relative_error(model(features).squeeze(-1), target)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        print(day + 1, repr(loss.item()))


if __name__ == "__main__":
    main()
