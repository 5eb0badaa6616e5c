import io

import numpy as np
import torch
from torch import nn

TABLE = """years,degree,remote,salary
1,0,0,2.1
3,1,0,2.9
8,1,1,4.6
2,0,1,2.4
11,2,0,5.8
5,1,1,
7,2,1,4.9
4,0,0,2.8
9,1,0,4.7
6,2,0,4.4
"""
rows = np.genfromtxt(io.StringIO(TABLE), delimiter=",", skip_header=1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
order = np.random.default_rng(0).permutation(len(rows))
for epoch in range(2):
    for index in np.array_split(order, 4):
        features = torch.tensor(rows[index, :-1], dtype=torch.float32)
        target = torch.tensor(rows[index, -1], dtype=torch.float32)
        loss = nn.functional.mse_loss(model(features).squeeze(-1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, loss.item())
