"""Count forecasts with a negative binomial likelihood, for which the target may not be centered."""

import torch
from torch import nn


class TorchNormalizer:
    def __init__(self, method: str = "standard", center: bool = True) -> None:
        self.method = method
        self.center = center

    def fit(self, y: torch.Tensor) -> "TorchNormalizer":
        if self.method == "identity":
            self.center_ = torch.zeros(y.shape[:-1])
            self.scale_ = torch.ones(y.shape[:-1])
        else:
            self.center_ = y.mean(dim=-1)
            self.scale_ = y.std(dim=-1) + 1e-8
        if not self.center:
            self.scale_ = self.center_
            self.center_ = torch.zeros_like(self.center_)
        return self

    def transform(self, y: torch.Tensor) -> torch.Tensor:
        return (y - self.center_[..., None]) / self.scale_[..., None]


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
        distribution = network(inputs[:, :-1], normalizer.scale_)
        loss = -distribution.log_prob(counts[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


if __name__ == "__main__":
    main()
