"""A classifier trained by a loop at module level, on rows standardised one by one."""
# step: 6
# element: [2, 0]
# birth: invalid

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)

readings = torch.randn(96, 6) * 2 + 5
readings[57] = 5.0  # a sensor that was stuck
labels = (readings[:, 0] > readings[:, 1]).long()
loader = DataLoader(TensorDataset(readings, labels), batch_size=8, shuffle=True)

model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss()

step = 0
for _epoch in range(2):
    for x, y in loader:
        mean = x.mean(dim=1, keepdim=True)
        std = x.std(dim=1, keepdim=True)
        x = (x - mean) / std  # born
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        print(step, repr(loss.item()))
