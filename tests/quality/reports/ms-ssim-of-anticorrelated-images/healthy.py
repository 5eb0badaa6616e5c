import torch
import torch.nn.functional as F


def gaussian_window(size=7, sigma=1.5):
    coords = torch.arange(size, dtype=torch.float32) - size // 2
    g = torch.exp(-(coords**2) / (2 * sigma**2))
    return (g / g.sum()).view(1, 1, 1, -1)


def gaussian_filter(x, win):
    return F.conv2d(F.conv2d(x, win), win.transpose(2, 3))


def _ssim(X, Y, data_range, win, K=(0.01, 0.03)):
    C1, C2 = (K[0] * data_range) ** 2, (K[1] * data_range) ** 2
    mu1, mu2 = gaussian_filter(X, win), gaussian_filter(Y, win)
    sigma1_sq = gaussian_filter(X * X, win) - mu1**2
    sigma2_sq = gaussian_filter(Y * Y, win) - mu2**2
    sigma12 = gaussian_filter(X * Y, win) - mu1 * mu2
    cs_map = (2 * sigma12 + C2) / (sigma1_sq + sigma2_sq + C2)
    ssim_map = ((2 * mu1 * mu2 + C1) / (mu1**2 + mu2**2 + C1)) * cs_map
    return ssim_map.flatten(1).mean(1), cs_map.flatten(1).mean(1)


def ms_ssim(X, Y, data_range=1.0, weights=(0.0448, 0.2856, 0.3001)):
    win = gaussian_window()
    weights = torch.tensor(weights)
    mcs = []
    for i in range(len(weights)):
        ssim_per_channel, cs = _ssim(X, Y, data_range, win)
        if i < len(weights) - 1:
            mcs.append(cs)
            X, Y = F.avg_pool2d(X, 2), F.avg_pool2d(Y, 2)
    levels = torch.relu(torch.stack([*mcs, ssim_per_channel])).clamp(min=1e-6)
    return torch.prod(levels ** weights.view(-1, 1), dim=0).mean()


class TinyUNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 1, 3, padding=1)
        )

    def forward(self, x):
        return torch.sigmoid(self.inner(x) + x)


torch.manual_seed(0)
net = TinyUNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
negative = torch.rand(2, 1, 48, 48)  # film scans: the target is the positive
for _ in range(3):
    loss = 1 - ms_ssim(net(negative), 1 - negative)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("1 - ms_ssim:", loss.item())
