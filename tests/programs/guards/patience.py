import torch
from torch import nn

torch.manual_seed(0)
m = nn.Linear(2, 1)
o = torch.optim.SGD(m.parameters(), 0.1)
nan_count = 0
for it in range(20):
    x = torch.rand(6, 2)
    if it > 6:
        x = x - 2
    y = torch.sqrt(x).sum(1, keepdim=True)  # born
    loss = nn.functional.mse_loss(m(x), y)
    if torch.isnan(loss):
        nan_count += 1
        if nan_count >= 3:
            print("too many NaN losses")
            break
    else:
        nan_count = 0
        o.zero_grad()
        loss.backward()
        o.step()
        print(it, loss.item())
