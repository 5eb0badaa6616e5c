import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Linear(3, 2)
o = torch.optim.SGD(m.parameters(), 0.1)
for epoch in range(5):
    losses = []
    for b in range(3):
        x = torch.randn(4, 3)
        if epoch == 2 and b == 1:
            x[0] = 0
            x[1] = 0
        s = m(x) - m.bias
        loss = (s.pow(2).sum(1) ** 0.25).log().mean()  # born
        losses.append(loss)
    total = torch.stack(losses).mean()
    if np.isnan(total.detach().numpy()) or np.isinf(total.detach().numpy()):
        print("nan at epoch", epoch)
        break
    o.zero_grad()
    total.backward()
    o.step()
    print(epoch, total.item())
