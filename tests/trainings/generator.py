"""A Poisson regression fed by a generator of batches."""
# step: 13
# element: [1, 0]
# birth: overflow

from collections.abc import Iterator

import torch
from torch import nn


def batches(size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields exposures with their number of claims, in an order drawn anew."""
    exposures = torch.rand(size * 16, 4)
    claims = torch.poisson(exposures.sum(dim=1, keepdim=True))
    exposures[61] *= 1000  # entered in metres, not in kilometres
    for rows in torch.randperm(len(exposures)).split(size):
        yield exposures[rows], claims[rows]


def main() -> None:
    torch.manual_seed(5)
    model = nn.Linear(4, 1)
    nn.init.constant_(model.weight, 0.3)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)

    for step, (exposure, claims) in enumerate(batches(6), start=1):
        optimizer.zero_grad()
        log_rate = model(exposure)
        rate = torch.exp(log_rate)  # born
        loss = (rate - claims * log_rate).mean()
        loss.backward()
        optimizer.step()
        print(step, repr(loss.item()))


if __name__ == "__main__":
    main()
