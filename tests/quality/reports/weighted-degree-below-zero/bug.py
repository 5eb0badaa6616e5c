"""A graph convolution on a sparse adjacency matrix whose weights are correlations."""

import torch
from torch import nn


def gcn_norm(adjacency: torch.Tensor) -> torch.Tensor:
    adjacency = adjacency.coalesce()
    row, col = adjacency.indices()
    weight = adjacency.values()
    deg = torch.zeros(adjacency.size(0)).index_add(0, row, weight)
    deg_inv_sqrt = deg.pow(-0.5)
    deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
    values = deg_inv_sqrt[row] * weight * deg_inv_sqrt[col]
    return torch.sparse_coo_tensor(adjacency.indices(), values, adjacency.shape)


class GCNConv(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(gcn_norm(adjacency), x @ self.weight) + self.bias


def correlation_graph(signals: torch.Tensor, threshold: float) -> torch.Tensor:
    correlation = torch.corrcoef(signals)
    strong = torch.where(correlation.abs() > threshold, correlation, 0.0)
    return strong.fill_diagonal_(0.2).to_sparse()


def main() -> None:
    torch.manual_seed(151)
    mixing = torch.randn(24, 6)
    signals = mixing @ torch.randn(6, 300) + 0.3 * torch.randn(24, 300)
    adjacency = correlation_graph(signals, threshold=0.4)
    features, target = signals[:, :20], mixing[:, :1]
    conv1, conv2 = GCNConv(20, 8), GCNConv(8, 1)
    optimizer = torch.optim.Adam([*conv1.parameters(), *conv2.parameters()], lr=0.01)
    for epoch in range(3):
        prediction = conv2(torch.tanh(conv1(features, adjacency)), adjacency)
        loss = (prediction - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
