"""Anomaly detection for service metrics: a scaler in NumPy, then an autoencoder."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class TanhScaler:
    def __init__(self, coeff: float = 0.2) -> None:
        self.coeff = coeff

    def fit(self, x: np.ndarray) -> "TanhScaler":
        self._mean = x.mean(axis=0)
        self._std = x.std(axis=0)
        return self

    def transform(self, x: np.ndarray) -> np.ndarray:
        x_scaled = (x - self._mean) / self._std
        return 0.5 * (np.tanh(self.coeff * x_scaled) + 1)


class Autoencoder(nn.Module):
    def __init__(self, seq_len: int, n_features: int) -> None:
        super().__init__()
        size = seq_len * n_features
        self.shape = (seq_len, n_features)
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(size, 16), nn.ReLU(), nn.Linear(16, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, size))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(batch)).unflatten(1, self.shape)


def load_metrics(n: int) -> np.ndarray:
    rng = np.random.default_rng(4)
    cpu = 40 + 10 * np.sin(np.arange(n) / 9) + rng.normal(size=n)
    latency = rng.gamma(2.0, 30.0, size=n)
    failures = rng.poisson(0.3, size=n).astype(float)
    return np.stack([cpu, latency, failures], axis=1)


def main() -> None:
    torch.manual_seed(4)
    metrics = load_metrics(200)
    scaled = TanhScaler().fit(metrics).transform(metrics).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(scaled, 12, axis=0).transpose(0, 2, 1)
    loader = DataLoader(TensorDataset(torch.from_numpy(windows.copy())), batch_size=32)
    model = Autoencoder(12, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        losses = []
        for (batch,) in loader:
            loss = nn.functional.mse_loss(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(epoch, sum(losses) / len(losses))


if __name__ == "__main__":
    main()
