"""Connectionist temporal classification, written out as a forward recursion in log space."""

import torch
from torch import nn

NEG_INF = torch.finfo(torch.float32).min / 4


def ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor, blank: int = 0) -> torch.Tensor:
    time, batch, _ = log_probs.shape
    extended = torch.full((batch, 2 * targets.size(1) + 1), blank)
    extended[:, 1::2] = targets
    skip = torch.zeros_like(extended, dtype=torch.bool)
    skip[:, 2:] = (extended[:, 2:] != blank) & (extended[:, 2:] != extended[:, :-2])
    rows = torch.arange(batch)[:, None]

    alpha = torch.full(extended.shape, NEG_INF)
    alpha[:, :2] = log_probs[0, rows, extended[:, :2]]
    for t in range(1, time):
        stay = alpha
        step = nn.functional.pad(alpha, (1, 0), value=NEG_INF)[:, :-1]
        jump = nn.functional.pad(alpha, (2, 0), value=NEG_INF)[:, :-2]
        jump = torch.where(skip, jump, torch.full_like(jump, NEG_INF))
        arrived = torch.logsumexp(torch.stack([stay, step, jump]), dim=0)
        alpha = arrived + log_probs[t, rows, extended]
    return -torch.logsumexp(alpha[:, -2:], dim=1).mean()


class Transcriber(nn.Module):
    def __init__(self, features: int, symbols: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(features, 24, bidirectional=True)
        self.out = nn.Linear(48, symbols)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(x)[0]).log_softmax(-1)


def main() -> None:
    torch.manual_seed(47)
    features = torch.randn(14, 3, 8)
    targets = torch.randint(1, 6, (3, 4))
    model = Transcriber(8, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(3):
        loss = ctc_loss(model(features), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
