"""Node classification with a hypergraph convolution; G is computed once, in NumPy."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def incidence(num_nodes: int, groups: list[list[int]]) -> np.ndarray:
    h = np.zeros((num_nodes, len(groups)))
    for edge, members in enumerate(groups):
        h[members, edge] = 1.0
    return h


def generate_g(h: np.ndarray) -> np.ndarray:
    weights = np.ones(h.shape[1])
    vertex_degree = (h * weights).sum(axis=1)
    edge_degree = h.sum(axis=0)
    inv_edge = np.power(edge_degree, -1.0)
    inv_vertex = np.power(vertex_degree, -0.5)
    dv = np.diag(inv_vertex)
    return dv @ h @ np.diag(weights) @ np.diag(inv_edge) @ h.T @ dv


class HGNN(nn.Module):
    def __init__(self, in_features: int, classes: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(in_features, 16)
        self.lin2 = nn.Linear(16, classes)

    def forward(self, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        x = F.relu(g @ self.lin1(x))
        return g @ self.lin2(F.dropout(x, 0.5, self.training))


def main() -> None:
    np.random.seed(0)
    torch.manual_seed(0)
    groups = [[0, 1, 2], [2, 3, 4, 5], [5, 6], [6, 7, 8, 9], [0, 9]]
    g = torch.from_numpy(generate_g(incidence(10, groups))).float()
    x = torch.from_numpy(np.random.randn(10, 6)).float()
    labels = torch.arange(10) % 3
    model = HGNN(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, g), labels)
        loss.backward()
        optimizer.step()
        print("loss", loss.item())


if __name__ == "__main__":
    main()
