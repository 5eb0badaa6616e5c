import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 3)
opt = torch.optim.Adam(net.parameters(), 1e-2)
with torch.autograd.detect_anomaly():
    for i in range(5):
        x = torch.randn(4, 3)
        if i == 3:
            x[1] = x[2]
        e = net(x)
        d = (e[1:] - e[:-1]).pow(2).sum(1).sqrt()  # born
        loss = (d - 1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(i, loss.item())
