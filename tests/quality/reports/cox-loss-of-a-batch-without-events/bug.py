import torch
from torch import nn


def cox_ph_loss(log_hazard: torch.Tensor, durations: torch.Tensor, events: torch.Tensor) -> torch.Tensor:
    """Negative partial log-likelihood, with the risk set taken from the batch."""
    order = durations.sort(descending=True)[1]
    events = events[order].float()
    log_hazard = log_hazard[order]
    gamma = log_hazard.max()
    log_risk = (log_hazard - gamma).exp().cumsum(0).log() + gamma
    return -((log_hazard - log_risk) * events).sum() / events.sum()


def simulate(n: int, features: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.randn(n, features)
    beta = torch.linspace(-0.5, 0.5, features)
    lifetimes = torch.distributions.Exponential(0.02 * torch.exp(x @ beta)).sample()
    censoring = torch.rand(n) * 6.0
    return x, torch.minimum(lifetimes, censoring), lifetimes <= censoring


torch.manual_seed(7)
x, durations, events = simulate(256, 5)
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

for epoch in range(2):
    total = 0.0
    for index in torch.randperm(len(x)).split(16):
        optimizer.zero_grad()
        loss = cox_ph_loss(net(x[index]).squeeze(1), durations[index], events[index])
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total:.4f}")
