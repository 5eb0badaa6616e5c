import torch
from torch import nn


def softmax(src: torch.Tensor, index: torch.Tensor, num_nodes: int) -> torch.Tensor:
    """Softmax over all edges that point to the same node."""
    biggest = src.new_full((num_nodes, src.size(1)), -1e30)
    biggest = biggest.scatter_reduce(0, index[:, None].expand_as(src), src.detach(), "amax")
    out = (src - biggest[index]).exp()
    total = out.new_zeros(num_nodes, out.size(1)).index_add(0, index, out)
    return out / (total[index] + 1e-16)


class GATConv(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(heads, out_channels))
        nn.init.xavier_uniform_(self.att_src)
        nn.init.xavier_uniform_(self.att_dst)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        source, target = edge_index
        h = self.lin(x).unflatten(1, (self.heads, -1))
        score = (h * self.att_src).sum(-1)[source] + (h * self.att_dst).sum(-1)[target]
        alpha = softmax(nn.functional.leaky_relu(score, 0.2), target, len(x))
        message = h[source] * alpha[..., None]
        return torch.zeros_like(h).index_add(0, target, message).flatten(1)


class GAT(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.conv1 = GATConv(features, 8, heads=4)
        self.conv2 = GATConv(32, classes, heads=1)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv2(nn.functional.elu(self.conv1(x, edge_index)), edge_index).log_softmax(dim=-1)


def main() -> None:
    torch.manual_seed(137)
    counts = torch.poisson(torch.rand(40, 12) * 600)  # raw word counts, not normalized
    edge_index = torch.cat([torch.randint(40, (2, 160)), torch.arange(40).expand(2, -1)], dim=1)
    labels = torch.randint(3, (40,))
    model = GAT(12, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    for epoch in range(3):
        loss = nn.functional.nll_loss(model(counts, edge_index), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
