import torch
from torch import nn


class SISDRLoss(nn.Module):
    """Scale-invariant signal-to-distortion ratio (Le Roux et al., 2018), in dB, negated."""

    def __init__(self, zero_mean=True, eps=1e-8, reduction="mean"):
        super().__init__()
        self.zero_mean = zero_mean
        self.eps = eps
        self.reduction = reduction

    def forward(self, input, target):
        if self.zero_mean:
            input = input - input.mean(dim=-1, keepdim=True)
            target = target - target.mean(dim=-1, keepdim=True)
        alpha = (input * target).sum(-1) / (target**2).sum(-1)
        target = target * alpha.unsqueeze(-1)
        res = input - target
        losses = 10 * torch.log10((target**2).sum(-1) / ((res**2).sum(-1) + self.eps) + self.eps)
        if self.reduction == "mean":
            losses = losses.mean()
        return -losses


class Separator(nn.Module):
    def __init__(self, sources=2, channels=16):
        super().__init__()
        self.encoder = nn.Conv1d(1, channels, 16, stride=8, bias=False)
        self.masks = nn.Conv1d(channels, sources * channels, 1)
        self.decoder = nn.ConvTranspose1d(channels, 1, 16, stride=8, bias=False)
        self.sources = sources

    def forward(self, mix):
        code = torch.relu(self.encoder(mix.unsqueeze(1)))
        masks = torch.sigmoid(self.masks(code)).chunk(self.sources, dim=1)
        return torch.stack([self.decoder(code * mask).squeeze(1) for mask in masks], dim=1)


def make_batch():
    drums = torch.randn(4, 400) * torch.linspace(1, 0, 400)
    vocals = torch.sin(torch.linspace(0, 60, 400)).repeat(4, 1)
    vocals[2] = 0.0  # an instrumental passage
    return drums + vocals, torch.stack([drums, vocals], dim=1)


torch.manual_seed(1)
net = Separator()
criterion = SISDRLoss()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(3):
    mix, stems = make_batch()
    opt.zero_grad()
    loss = criterion(net(mix), stems)
    loss.backward()
    opt.step()
print(f"SI-SDR loss: {loss.item():.2f} dB")
