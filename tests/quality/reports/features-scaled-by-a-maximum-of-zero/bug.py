import numpy as np
import torch
from torch import nn


def load(path_seed):
    rng = np.random.default_rng(path_seed)
    x = rng.poisson(3.0, size=(48, 18)).astype(np.float64)
    x[:, 11] = 0.0  # no function of these binaries makes such a call
    return x


def normalize(x):
    maxval = x.max(axis=0)
    x = x / maxval
    return x.astype(np.float32)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(18, 8), nn.LeakyReLU())
        self.decode = nn.Linear(8, 18)

    def forward(self, x):
        return self.decode(self.encode(x))


torch.manual_seed(0)
data = torch.from_numpy(normalize(load(5)))
model = AutoEncoder()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    out = model(data)
    loss = ((out - data) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"epoch {epoch} loss = {loss.item()} - mse = {loss.item()}")
