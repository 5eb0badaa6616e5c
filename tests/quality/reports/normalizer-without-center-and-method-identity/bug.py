"""Count forecasts with a negative binomial likelihood, for which the target may not be centered."""

import torch
from torch import nn


class TorchNormalizer:
    def __init__(self, method: str = "standard", center: bool = True) -> None:
        self.method = method
        self.center = center

    def fit(self, y: torch.Tensor) -> "TorchNormalizer":
        offset, spread = y.new_zeros(len(y)), y.new_ones(len(y))
        if self.method == "standard":
            offset, spread = y.mean(dim=1), y.std(dim=1) + 1e-8
        if not self.center:
            offset, spread = torch.zeros_like(offset), offset
        self.offset, self.spread = offset, spread
        return self

    def transform(self, y: torch.Tensor) -> torch.Tensor:
        return (y - self.offset[:, None]) / self.spread[:, None]


class NegativeBinomialRNN(nn.Module):
    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.rnn = nn.LSTM(1, hidden, batch_first=True)
        self.mean = nn.Linear(hidden, 1)
        self.shape = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.distributions.NegativeBinomial:
        output, _ = self.rnn(x[..., None])
        mean = nn.functional.softplus(self.mean(output).squeeze(-1)) * scale[:, None] + 1e-6
        alpha = nn.functional.softplus(self.shape(output).squeeze(-1)) + 1e-6
        logits = torch.log(mean * alpha)
        return torch.distributions.NegativeBinomial(1.0 / alpha, logits=logits, validate_args=False)


def main() -> None:
    torch.manual_seed(6)
    counts = torch.poisson(torch.full((8, 24), 3.0))
    normalizer = TorchNormalizer(method="identity", center=False).fit(counts)
    network = NegativeBinomialRNN()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    inputs = normalizer.transform(counts)
    for _ in range(3):
        distribution = network(inputs[:, :-1], normalizer.spread)
        loss = -distribution.log_prob(counts[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


if __name__ == "__main__":
    main()
