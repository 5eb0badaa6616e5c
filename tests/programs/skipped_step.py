"""A loss scale too large at first: its infinite gradients are meant, found by the scaler, and the step skipped."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
for _ in range(4):
    optimizer.zero_grad()
    loss = (layer(torch.full((2, 4), 8.0)) * 4).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(loss.item().hex(), scaler.get_scale().hex())
