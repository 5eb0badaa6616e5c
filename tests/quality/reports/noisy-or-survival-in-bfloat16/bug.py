import torch
from torch import nn


def pair_consistency_loss(pair_probabilities, pair_heads, head_probabilities):
    """The noisy-or of the pairs of a head has to agree with the probability of the head itself."""
    log_survival = torch.log1p(-pair_probabilities.clamp(max=1.0 - 1e-6))
    marginal = torch.zeros_like(head_probabilities).scatter_add_(0, pair_heads, log_survival)
    return (1.0 - marginal.exp() - head_probabilities).square().mean()


class BoundaryModel(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(width, 1)
        self.pair = nn.Bilinear(width, width, 1)

    def forward(self, tokens, heads, tails):
        hidden = self.encoder(tokens)
        scores = self.pair(hidden[heads], hidden[tails]).squeeze(-1)
        return torch.sigmoid(self.head(hidden).squeeze(-1)), torch.sigmoid(scores)


torch.manual_seed(0)
model = BoundaryModel().to(torch.bfloat16)
with torch.no_grad():
    model.pair.weight.mul_(12)  # a freshly initialised submodule that is far too confident
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
heads = torch.arange(10).repeat_interleave(6)
tails = torch.randint(0, 10, (60,))
keep = (torch.rand(60) < 0.7).to(torch.bfloat16)
for step in range(3):
    tokens = torch.randn(10, 16, dtype=torch.bfloat16)
    head_probabilities, pair_probabilities = model(tokens, heads, tails)
    loss = pair_consistency_loss(pair_probabilities * keep, heads, head_probabilities)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4f}")
