import torch
from torch import nn

torch.manual_seed(0)
enc, dec = nn.Linear(6, 4), nn.Linear(2, 6)
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=1e-2)
for epoch in range(2):
    for i in range(4):
        x = torch.randn(10, 6) * (1 if (epoch, i) != (1, 2) else 500)
        mu, logvar = enc(x).chunk(2, 1)
        std = logvar.exp().sqrt()  # born
        z = mu + std * torch.randn_like(std)
        loss = (dec(z) - x).pow(2).mean() - 0.5 * (1 + logvar - mu**2 - logvar.exp()).mean()
        if loss != loss or loss == float("inf"):
            raise RuntimeError("loss diverged")
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"{loss.item():.6f}")
