"""Bayesian personalised ranking over (user, positive item, negative item) triplets."""

import torch
from torch import nn


def bpr_triplet_loss(user: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    difference = (user * positive).sum(-1) - (user * negative).sum(-1)
    exponential = torch.exp(difference)
    return (1.0 - exponential / (1.0 + exponential)).mean()


class TripletModel(nn.Module):
    def __init__(self, num_users: int, num_items: int, latent_dim: int) -> None:
        super().__init__()
        self.user = nn.Embedding(num_users, latent_dim)
        self.item = nn.Embedding(num_items, latent_dim)

    def forward(self, uid: torch.Tensor, pid: torch.Tensor, nid: torch.Tensor) -> torch.Tensor:
        return bpr_triplet_loss(self.user(uid), self.item(pid), self.item(nid))


def triplets(train: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    uid, pid = train.nonzero(as_tuple=True)
    pick = torch.randint(len(uid), (count,))
    return uid[pick], pid[pick], torch.randint(train.size(1), (count,))


def main() -> None:
    torch.manual_seed(41)
    train = torch.rand(25, 60) < 0.1
    model = TripletModel(25, 60, latent_dim=100)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    for epoch in range(12):
        uid, pid, nid = triplets(train, 512)
        loss = model(uid, pid, nid)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"Epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
