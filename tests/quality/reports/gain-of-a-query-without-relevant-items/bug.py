"""A listwise ranker: ListNet loss in training, NDCG in validation."""

import torch
from torch import nn

PADDED = -1.0


def dcg(scores: torch.Tensor, labels: torch.Tensor, at: int) -> torch.Tensor:
    order = scores.masked_fill(labels == PADDED, float("-inf")).argsort(descending=True, dim=-1)
    ranked = labels.gather(1, order)[:, :at].clamp(min=0.0)
    discounts = 1 / torch.log2(torch.arange(at, dtype=torch.float) + 2.0)
    return ((2**ranked - 1) * discounts).sum(dim=-1)


def ndcg(scores: torch.Tensor, labels: torch.Tensor, at: int, filler_value: float = 1.0) -> torch.Tensor:
    ideal = dcg(labels, labels, at)
    return dcg(scores, labels, at) / ideal


def list_net(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    mask = labels == PADDED
    truth = labels.masked_fill(mask, -1e9).softmax(dim=1)
    return -(truth * scores.masked_fill(mask, -1e9).log_softmax(dim=1)).sum(dim=1).mean()


def slates(n: int, length: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, length, features)
    relevance = (x[..., 0] + 0.5 * torch.randn(n, length) - 1.2).clamp(min=0).mul(2).floor().clamp(max=4)
    relevance[:, length - 2 :][torch.rand(n, 2) < 0.5] = PADDED
    return x, relevance


if __name__ == "__main__":
    torch.manual_seed(107)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1), nn.Flatten(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, labels = slates(64, 8, 6)
    x_val, labels_val = slates(32, 8, 6)
    for epoch in range(3):
        loss = list_net(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            metric = ndcg(model(x_val), labels_val, at=5).mean()
        print(f"Epoch {epoch}: train loss {loss.item():.4f}, val ndcg_5 {metric.item():.4f}")
