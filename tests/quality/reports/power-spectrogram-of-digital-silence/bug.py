import math

import torch
from torch import nn


def spectrogram(waveform, window, n_fft, hop_length, power, normalized=False):
    spec_f = torch.stft(
        waveform, n_fft, hop_length, window=window, center=True, pad_mode="reflect", return_complex=True
    )
    if normalized:
        spec_f = spec_f / window.pow(2.0).sum().sqrt()
    return torch.view_as_real(spec_f).pow(2.0).sum(-1).pow(0.5 * power)


class Separator(nn.Module):
    """A strided convolutional mask estimator that works on the waveform."""

    def __init__(self, channels=16, kernel=16):
        super().__init__()
        self.encoder = nn.Conv1d(1, channels, kernel, stride=kernel // 2, bias=False)
        self.mask = nn.Sequential(
            nn.Conv1d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv1d(channels, channels, 1)
        )
        self.decoder = nn.ConvTranspose1d(channels, 1, kernel, stride=kernel // 2, bias=False)

    def forward(self, mixture):
        encoded = self.encoder(mixture.unsqueeze(1))
        return self.decoder(encoded * torch.sigmoid(self.mask(encoded))).squeeze(1)


class SpectralLoss(nn.Module):
    def __init__(self, n_fft=128, hop_length=32, power=1.0):
        super().__init__()
        self.register_buffer("window", torch.hann_window(n_fft))
        self.n_fft, self.hop_length, self.power = n_fft, hop_length, power

    def forward(self, estimate, target):
        estimated = spectrogram(estimate, self.window, self.n_fft, self.hop_length, self.power)
        wanted = spectrogram(target, self.window, self.n_fft, self.hop_length, self.power)
        return nn.functional.l1_loss(estimated, wanted)


torch.manual_seed(0)
time = torch.arange(1024) / 8000
tone = torch.sin(2 * math.pi * 440 * time)
target = torch.stack([tone, torch.cat([tone[:512], torch.zeros(512)])])
mixture = target + torch.stack([0.1 * torch.randn(1024), torch.zeros(1024)])  # the second example has no noise
model, criterion = Separator(), SpectralLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    loss = criterion(model(mixture), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item(), "weights finite:", all(p.isfinite().all().item() for p in model.parameters()))
