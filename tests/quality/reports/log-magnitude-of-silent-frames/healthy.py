import torch


class STFTMagnitudeLoss(torch.nn.Module):
    """STFT magnitude loss module, after Arik et al. 2018."""

    def __init__(self, log=True, distance="L1", reduction="mean", log_eps=1e-5):
        super().__init__()
        self.log = log
        self.log_eps = log_eps
        self.distance = {
            "L1": torch.nn.L1Loss(reduction=reduction),
            "L2": torch.nn.MSELoss(reduction=reduction),
        }[distance]

    def forward(self, x_mag, y_mag):
        if self.log:
            x_mag = torch.log(x_mag + self.log_eps)
            y_mag = torch.log(y_mag + self.log_eps)
        return self.distance(x_mag, y_mag)


def spectrogram(wave, n_fft=64, hop=16):
    window = torch.hann_window(n_fft)
    return torch.stft(wave, n_fft, hop, window=window, return_complex=True).abs()


class Denoiser(torch.nn.Module):
    """A mask of ReLU gains on each bin."""

    def __init__(self, bins=33):
        super().__init__()
        self.gain = torch.nn.Sequential(
            torch.nn.Conv1d(bins, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv1d(32, bins, 1)
        )

    def forward(self, mag):
        return mag * torch.relu(1 + self.gain(mag))


torch.manual_seed(0)
clean = torch.sin(torch.arange(1024) * 0.2).repeat(2, 1)
clean[1, 300:700] = 0.0  # digital silence between two phrases
noisy = clean.clone()
noisy[:, :300] += 0.05 * torch.randn(2, 300)

model, criterion = Denoiser(), STFTMagnitudeLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    loss = criterion(model(spectrogram(noisy)), spectrogram(clean))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("log magnitude loss:", loss.item())
