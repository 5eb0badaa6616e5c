import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIELDS = ("temperature", "pressure", "wind_u", "rain_rate")


def load_analysis(hours, nodes, rng):
    """A short stretch of a regional analysis, [time, node, field]."""
    t = np.arange(hours)[:, None]
    temperature = 285 + 6 * np.sin(2 * np.pi * t / 24) + rng.normal(0, 1, (hours, nodes))
    pressure = 1013 + rng.normal(0, 4, (hours, nodes))
    wind = rng.normal(0, 5, (hours, nodes))
    rain = np.zeros((hours, nodes))  # July
    return np.stack([temperature, pressure, wind, rain], axis=-1).astype(np.float32)


class WeatherDataset(Dataset):
    def __init__(self, state, ar_steps=2):
        self.state, self.ar_steps = state, ar_steps
        self.state_mean = state.mean(axis=(0, 1))
        self.state_std = state.std(axis=(0, 1))

    def __len__(self):
        return len(self.state) - self.ar_steps - 1

    def __getitem__(self, idx):
        window = self.state[idx : idx + self.ar_steps + 2]
        window = (window - self.state_mean) / self.state_std
        init_states, target_states = window[:2], window[2:]
        return torch.from_numpy(init_states), torch.from_numpy(target_states)


class GraphLAM(nn.Module):
    """Encode, mix over the neighbours of a line of nodes, decode; predicts the change of the state."""

    def __init__(self, fields, hidden=16):
        super().__init__()
        self.encode, self.decode = nn.Linear(2 * fields, hidden), nn.Linear(hidden, fields)
        self.mix = nn.Conv1d(hidden, hidden, 3, padding=1)

    def forward(self, previous, current):
        latent = torch.relu(self.encode(torch.cat([previous, current], -1)))
        return current + self.decode(torch.relu(self.mix(latent.transpose(1, 2))).transpose(1, 2))


def main():
    torch.manual_seed(0)
    loader = DataLoader(WeatherDataset(load_analysis(30, 12, np.random.default_rng(0))), batch_size=9)
    model = GraphLAM(len(FIELDS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for init_states, target_states in loader:
        previous, current = init_states.unbind(1)
        loss = 0.0
        for target in target_states.unbind(1):
            previous, current = current, model(previous, current)
            loss = loss + nn.functional.mse_loss(current, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("train loss", loss.item())


if __name__ == "__main__":
    main()
