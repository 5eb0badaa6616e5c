import torch
from torch import nn


def compute_sharpe(returns: torch.Tensor, rf_annual: float = 0.02, periods: int = 252) -> torch.Tensor:
    excess = returns - rf_annual / periods
    mean_excess = excess.mean(dim=-1)
    std_excess = excess.std(dim=-1)
    return mean_excess / std_excess * periods**0.5


class PortfolioPolicy(nn.Module):
    """The share of the capital in the risky asset, from its last prices."""

    def __init__(self, lookback: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(lookback, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, window: torch.Tensor) -> torch.Tensor:
        return self.net(window).squeeze(-1).clamp(0.0, 1.0)


def rollout(policy: PortfolioPolicy, prices: torch.Tensor, lookback: int) -> torch.Tensor:
    log_returns = prices.log().diff(dim=-1)
    windows = log_returns.unfold(-1, lookback, 1)[:, :-1]
    positions = policy(windows * 100)
    return positions * log_returns[:, lookback:]


def main() -> None:
    torch.manual_seed(79)
    lookback = 10
    drift = torch.tensor([0.0008, 0.0004, 0.0002, 0.0])[:, None]
    noise = torch.tensor([0.01, 0.02, 0.015, 0.0])[:, None]
    prices = 100 * torch.exp((drift + noise * torch.randn(4, 80)).cumsum(-1))
    policy = PortfolioPolicy(lookback)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for episode in range(3):
        sharpe = compute_sharpe(rollout(policy, prices, lookback))
        loss = -sharpe.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(episode, sharpe.tolist())


if __name__ == "__main__":
    main()
