"""Non-autoregressive generation over a pointer vocabulary: positions beyond the query's end cannot be copied."""

import torch
from torch import nn
from torch.nn import functional as F


class LabelSmoothedNLL(nn.Module):
    def __init__(self, ignore_index: int, beta: float) -> None:
        super().__init__()
        self.ignore_index = ignore_index
        self.beta = beta

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        log_probs = F.log_softmax(logits, dim=-1)
        keep = targets != self.ignore_index
        label_loss = F.nll_loss(log_probs[keep], targets[keep])
        smoothing_loss = -log_probs[keep].mean(dim=-1).mean()
        return (1.0 - self.beta) * label_loss + self.beta * smoothing_loss


class PointerDecoder(nn.Module):
    def __init__(self, vocab: int, actions: int, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.queries = nn.Embedding(8, width)
        self.action_head = nn.Linear(width, actions)

    def forward(self, tokens: torch.Tensor, target_length: int) -> torch.Tensor:
        source = self.embed(tokens)
        states = self.queries.weight[:target_length].expand(len(tokens), -1, -1) + source.mean(dim=1, keepdim=True)
        copy = states @ source.transpose(1, 2) / source.size(-1) ** 0.5
        copy = copy.masked_fill((tokens == 0)[:, None, :], float("-inf"))
        return torch.cat([self.action_head(states), copy], dim=-1)


def train(beta: float) -> None:
    torch.manual_seed(29)
    tokens = torch.tensor([[4, 9, 12, 7, 3], [6, 8, 2, 0, 0], [11, 5, 13, 9, 0]])
    targets = torch.tensor([[1, 5, 6, 2], [0, 5, 2, -1], [1, 7, 3, 2]])
    model = PointerDecoder(vocab=16, actions=4)
    criterion = LabelSmoothedNLL(ignore_index=-1, beta=beta)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(3):
        loss = criterion(model(tokens, targets.size(1)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


if __name__ == "__main__":
    train(beta=0.0)
