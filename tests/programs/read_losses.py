"""Numbers made of losses that require a gradient, of which torch warns once, at the line that asks."""

import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    loss = net(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, float(loss))
