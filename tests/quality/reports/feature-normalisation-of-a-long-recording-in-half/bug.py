import torch
from torch import nn


def temporal_mask(x, lengths):
    return (torch.arange(x.shape[-1])[None, None, :] < lengths[:, None, None]).type_as(x)


class MaskedInstanceNorm1d(nn.Module):
    """Zero mean and unit variance over the valid frames of each feature."""

    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x, mask):
        count = mask.sum(dim=-1, keepdim=True)
        mean = (x * mask).sum(dim=-1, keepdim=True) / count
        centred = (x - mean) * mask
        var = centred.square().sum(dim=-1, keepdim=True) / count
        return centred / (var + self.eps).sqrt()


class LogFilterBank(nn.Module):
    def __init__(self, sample_rate=8000, window=200, hop=80, bands=16):
        super().__init__()
        self.window, self.hop, self.n_fft = window, hop, 256
        self.register_buffer("bank", torch.rand(bands, self.n_fft // 2 + 1).softmax(dim=-1))

    def forward(self, signal):
        spec = torch.stft(
            signal, self.n_fft, self.hop, self.window, torch.hann_window(self.window), return_complex=True
        )
        return torch.log(self.bank @ spec.abs().square() + 1e-6)


class AcousticModel(nn.Module):
    def __init__(self, bands=16, channels=24, vocabulary=30):
        super().__init__()
        self.frontend, self.normalize_features = LogFilterBank(bands=bands), MaskedInstanceNorm1d()
        self.backbone = nn.Sequential(nn.Conv1d(bands, channels, 11, stride=2, padding=5), nn.ReLU())
        self.decoder = nn.Conv1d(channels, vocabulary, 1)

    def half_precision(self):
        for module in (self.backbone, self.decoder):
            module.half()
        return self

    def forward(self, signal, lengths):
        x = self.frontend(signal).to(self.decoder.weight.dtype)
        mask = temporal_mask(x, 1 + lengths // self.frontend.hop)
        x = self.normalize_features(x, mask)
        return torch.log_softmax(self.decoder(self.backbone(x)).float(), dim=1)


torch.manual_seed(0)
model = AcousticModel().half_precision().eval()
lengths = torch.tensor([8000 * 4, 8000 * 150])  # a greeting, and a call of two and a half minutes
signal = torch.zeros(2, int(lengths.max()))
for row, length in enumerate(lengths.tolist()):
    signal[row, :length] = 1e-4 * torch.randn(length)
with torch.no_grad():
    log_probs = model(signal, lengths)
for row in range(2):
    frames = int(lengths[row]) // 160
    print("utterance", row, "mean best score", log_probs[row, :, :frames].max(dim=0).values.mean().item())
