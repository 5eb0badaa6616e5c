"""Federated learning on a simulated split: every client gets its own mixture of classes."""

import numpy as np
import torch
from torch import nn


def dirichlet(rng: np.random.Generator, alpha: float, classes: int) -> np.ndarray:
    gammas = rng.standard_gamma(alpha, size=classes)
    return gammas / gammas.sum()


def client_labels(rng: np.random.Generator, clients: int, classes: int, alpha: float) -> np.ndarray:
    """The share of each class at every client."""
    return np.stack([dirichlet(rng, alpha, classes) for _ in range(clients)])


class PersonalHead(nn.Module):
    """Predicts a client's class shares from its embedding; used as a prior of the local classifier."""

    def __init__(self, clients: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(clients, 8)
        self.out = nn.Linear(8, classes)

    def forward(self, client: torch.Tensor) -> torch.Tensor:
        return self.out(self.embed(client)).log_softmax(-1)


def main() -> None:
    rng = np.random.default_rng(5)
    torch.manual_seed(131)
    clients, classes = 12, 5
    shares = torch.from_numpy(client_labels(rng, clients, classes, alpha=0.3)).float()
    model = PersonalHead(clients, classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for round_ in range(3):
        picked = torch.randperm(clients)[:8]
        loss = -(shares[picked] * model(picked)).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"round {round_}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
