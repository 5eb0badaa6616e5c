import torch
from torch import nn


class Normalize:
    """Zero mean and a largest amplitude of one, for each component."""

    def __call__(self, batch):
        batch = batch - batch.mean(dim=-1, keepdim=True)
        return batch / batch.abs().amax(dim=-1, keepdim=True)


class AddRandomNoise:
    def __init__(self, snr=10.0):
        self.snr = snr

    def __call__(self, batch):
        noise = torch.randn_like(batch)
        power = batch.square().mean(dim=-1, keepdim=True)
        return batch + noise * torch.sqrt(power / self.snr)


class DropChannel:
    """One of the three components is silenced in some of the examples."""

    def __init__(self, p=0.3):
        self.p = p

    def __call__(self, batch):
        examples, channels, _ = batch.shape
        keep = torch.ones(examples, channels, 1)
        chosen = torch.rand(examples) < self.p
        keep[chosen, torch.randint(channels, (int(chosen.sum()),))] = 0.0
        return batch * keep


class PhasePicker(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(3, channels, 7, padding=3), nn.ReLU(), nn.Conv1d(channels, 2, 7, padding=3))

    def forward(self, x):
        return self.net(x)


def synthetic_events(count, length=200):
    onset = torch.randint(40, 160, (count,))
    time = torch.arange(length)[None] - onset[:, None]
    wave = torch.where(time > 0, torch.exp(-time / 25.0) * torch.sin(time / 2.0), 0.0)
    gain = 10 ** torch.randn(count, 3, 1)
    return gain * (wave[:, None] + 0.02 * torch.randn(count, 3, length)), onset


torch.manual_seed(0)
transforms = [AddRandomNoise(), DropChannel(), Normalize()]
model = PhasePicker()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    waveforms, onset = synthetic_events(16)
    target = (torch.arange(200)[None] >= onset[:, None]).long()
    for transform in transforms:
        waveforms = transform(waveforms)
    loss = nn.functional.cross_entropy(model(waveforms), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
