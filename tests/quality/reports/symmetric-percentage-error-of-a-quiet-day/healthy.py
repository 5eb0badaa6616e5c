"""Backtest of a forecaster over several cut-offs, with metrics by horizon."""

import torch
from torch import nn


def mae(y: torch.Tensor, yhat: torch.Tensor) -> torch.Tensor:
    return (y - yhat).abs().mean(dim=0)


def smape(y: torch.Tensor, yhat: torch.Tensor) -> torch.Tensor:
    sape = (y - yhat).abs() / ((y.abs() + yhat.abs()) / 2)
    return sape.nan_to_num(nan=0.0).mean(dim=0)


class DemandModel(nn.Module):
    def __init__(self, history: int, horizon: int) -> None:
        super().__init__()
        self.linear = nn.Linear(history, horizon)

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(past))


def cross_validation(model: DemandModel, series: torch.Tensor, cutoffs: range) -> tuple[torch.Tensor, torch.Tensor]:
    history, horizon = model.linear.in_features, model.linear.out_features
    past = torch.stack([series[c - history : c] for c in cutoffs])
    future = torch.stack([series[c : c + horizon] for c in cutoffs])
    with torch.no_grad():
        return future, model(past)


def performance_metrics(y: torch.Tensor, yhat: torch.Tensor) -> dict[str, list[float]]:
    return {"mae": mae(y, yhat).tolist(), "smape": smape(y, yhat).tolist()}


torch.manual_seed(73)
demand = torch.poisson(torch.full((120,), 1.2))
model = DemandModel(history=14, horizon=4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for _ in range(30):
    start = torch.randint(0, 70, (16,))
    window = torch.stack([demand[s : s + 18] for s in start])
    loss = (model(window[:, :14]) - window[:, 14:]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for name, values in performance_metrics(*cross_validation(model, demand, range(90, 116))).items():
    print(name, values)
