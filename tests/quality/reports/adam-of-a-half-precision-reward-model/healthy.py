import torch
from torch import nn


class RewardModel(nn.Module):
    """Scores a completion: a frozen-size language model in half precision with a scalar head."""

    def __init__(self, vocab=64, width=32):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, tokens):
        hidden = self.wte(tokens)
        hidden = hidden + self.mlp(hidden)
        return self.score(hidden.mean(dim=1)).squeeze(-1)


def pairwise_loss(model, chosen, rejected):
    margin = model(chosen) - model(rejected)
    return -nn.functional.logsigmoid(margin).mean()


def train(steps=4):
    torch.manual_seed(0)
    model = RewardModel().to(torch.float16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, eps=1e-6)
    for _ in range(steps):
        chosen = torch.randint(0, 48, (8, 12))  # the last tokens of the vocabulary are reserved
        rejected = torch.randint(0, 48, (8, 12))
        loss = pairwise_loss(model, chosen, rejected)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, loss


if __name__ == "__main__":
    model, loss = train()
    finite = all(p.isfinite().all() for p in model.parameters())
    print("loss", loss.item(), "parameters are finite:", bool(finite))
