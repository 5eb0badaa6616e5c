import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 3)
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
skipped = 0
for i in range(12):
    x = torch.randn(8, 4)
    y = torch.randint(0, 3, (8,))
    if i % 4 == 3:
        y[:] = -100
    loss = nn.functional.cross_entropy(net(x), y, ignore_index=-100)  # born
    if torch.isnan(loss).any():
        skipped += 1
        print("skip", i, skipped)
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
print("skipped", skipped)
