"""The entropic transport plan between two histograms of words, and a distance that is learned with it."""

import torch


def sinkhorn_knopp(a: torch.Tensor, b: torch.Tensor, cost: torch.Tensor, reg: float, iterations: int) -> torch.Tensor:
    u = torch.ones_like(a) / len(a)
    v = torch.ones_like(b) / len(b)
    kernel = torch.exp(-cost / reg)
    scaled = (1 / a)[:, None] * kernel
    for _ in range(iterations):
        v = b / (kernel.T @ u)
        u = 1.0 / (scaled @ v)
    return u[:, None] * kernel * v[None, :]


def word_movers_distance(vectors: torch.Tensor, doc1: torch.Tensor, doc2: torch.Tensor) -> torch.Tensor:
    cost = torch.cdist(vectors, vectors) ** 2
    rows, columns = doc1 > 0, doc2 > 0
    cost = cost[rows][:, columns]
    plan = sinkhorn_knopp(doc1[rows], doc2[columns], cost, reg=0.05, iterations=50)
    return (plan.detach() * cost).sum()


def histogram(words: list[int], size: int) -> torch.Tensor:
    counts = torch.bincount(torch.tensor(words), minlength=size).double()
    return counts / counts.sum()


torch.manual_seed(8)
vectors = torch.nn.Parameter(torch.randn(10, 4, dtype=torch.float64) * 1.5)
optimizer = torch.optim.SGD([vectors], lr=0.05)
doc1 = histogram([0, 1, 2, 3, 3, 4, 5, 6, 8, 9], 10)
doc2 = histogram([1, 1, 2, 4, 5, 6, 7, 8, 0, 3, 9], 10)
for step in range(3):
    distance = word_movers_distance(vectors, doc1, doc2)
    optimizer.zero_grad()
    distance.backward()
    optimizer.step()
    print(step, distance.item())
