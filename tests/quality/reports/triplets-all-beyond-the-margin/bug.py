import torch
from torch import nn
from torch.nn import functional as F


def all_triplets(labels):
    same = labels[:, None] == labels[None, :]
    positive = same & ~torch.eye(len(labels), dtype=torch.bool)
    pairs = positive[:, :, None] & ~same[:, None, :]
    return torch.where(pairs)


class TripletMarginLoss(nn.Module):
    def __init__(self, margin=0.05, avg_non_zero_only=True):
        super().__init__()
        self.margin = margin
        self.avg_non_zero_only = avg_non_zero_only
        self.num_non_zero_triplets = 0

    def forward(self, embeddings, labels):
        anchor, positive, negative = all_triplets(labels)
        a_p = F.pairwise_distance(embeddings[anchor], embeddings[positive])
        a_n = F.pairwise_distance(embeddings[anchor], embeddings[negative])
        relued = F.relu(a_p - a_n + self.margin)
        self.num_non_zero_triplets = int((relued > 0).sum())
        if self.avg_non_zero_only:
            return torch.sum(relued) / self.num_non_zero_triplets
        return torch.mean(relued)


torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
loss_func = TripletMarginLoss(margin=0.05)
optimizer = torch.optim.Adam(trunk.parameters(), lr=1e-2)

centres = 4 * torch.randn(3, 8)
for iteration in range(40):
    labels = torch.arange(3).repeat_interleave(4)
    data = centres[labels] + 0.1 * torch.randn(12, 8)
    optimizer.zero_grad()
    loss = loss_func(F.normalize(trunk(data)), labels)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}, triplets {loss_func.num_non_zero_triplets}")
