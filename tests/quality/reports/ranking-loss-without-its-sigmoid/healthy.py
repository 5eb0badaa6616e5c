import torch
from torch import nn


class GraphDenoisingEncoder(nn.Module):
    """Spectral collaborative filtering: users and items are the low-frequency vectors of the bipartite graph."""

    def __init__(self, interactions: torch.Tensor, rank: int, dim: int) -> None:
        super().__init__()
        n_user, n_item = interactions.shape
        degree_u = interactions.sum(1).clamp(min=1).rsqrt()
        degree_i = interactions.sum(0).clamp(min=1).rsqrt()
        u, s, v = torch.linalg.svd(degree_u[:, None] * interactions * degree_i, full_matrices=False)
        weight = torch.exp(0.5 * s[:rank])
        self.register_buffer("user_filter", (u[:, :rank] * weight) @ u[:, :rank].T)
        self.register_buffer("item_filter", (v[:rank].T * weight) @ v[:rank])
        self.user = nn.Embedding(n_user, dim)
        self.item = nn.Embedding(n_item, dim)
        nn.init.xavier_normal_(self.user.weight)
        nn.init.xavier_normal_(self.item.weight)

    def forward(self, u: torch.Tensor, p: torch.Tensor, nega: torch.Tensor, reg: float = 0.01) -> torch.Tensor:
        final_user = self.user_filter[u] @ self.user.weight
        final_pos = self.item_filter[p] @ self.item.weight
        final_nega = self.item_filter[nega] @ self.item.weight
        out = ((final_user * final_pos).sum(1) - (final_user * final_nega).sum(1)).sigmoid()
        penalty = reg * (final_user**2 + final_pos**2 + final_nega**2).sum()
        return -torch.log(out).sum() + penalty


torch.manual_seed(37)
interactions = (torch.rand(30, 40) < 0.15).float()
model = GraphDenoisingEncoder(interactions, rank=8, dim=16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
users, items = interactions.nonzero(as_tuple=True)
for epoch in range(2):
    total = 0.0
    for batch in torch.randperm(len(users)).split(32):
        negatives = torch.randint(40, (len(batch),))
        loss = model(users[batch], items[batch], negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print("epoch", epoch, "loss", total)
