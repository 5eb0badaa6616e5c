"""Train a small de-noiser of plucked notes that estimates complex sub-bands and is judged by magnitude and phase.

The loss of every step is finite, the gradients of none are, and the guard in the loop skips each step.
``python train.py --fixed`` trains with a phase head that stays away from the origin.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RATE, SAMPLES, BINS = 8000, 8192, 65


def plucked(frequency: Tensor) -> Tensor:
    """Notes of a second that die away, as a plucked string does."""
    time = torch.arange(SAMPLES) / RATE
    return torch.sin(2 * torch.pi * frequency[:, None] * time) * torch.exp(-60.0 * time)


def subbands(audio: Tensor) -> Tensor:
    """The complex spectrogram as two channels, real and imaginary: ``[batch, 2, bins, frames]``."""
    window = torch.hann_window(2 * (BINS - 1))
    spectrum = torch.stft(audio, 2 * (BINS - 1), window=window, return_complex=True)
    return torch.stack([spectrum.real, spectrum.imag], dim=1)


def without_zeros(real: Tensor) -> Tensor:
    """What a division by zero would come from, taken away."""
    return real + (real == 0) * 1e-7


def with_direction(real: Tensor, imag: Tensor) -> Tensor:
    """What is next to silent has no direction: give it a harmless one."""
    return torch.where(real.abs() + imag.abs() < 1e-15, 1.0, real)


class PhaseHead(nn.Module):
    """Magnitude and phase of complex sub-bands."""

    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed = fixed

    def forward(self, bands: Tensor) -> tuple[Tensor, Tensor]:
        real, imag = bands[:, 0], bands[:, 1]
        real = with_direction(real, imag) if self.fixed else without_zeros(real)
        magnitude = torch.log1p(bands.abs().sum(dim=1))
        return magnitude, torch.atan2(imag, real)


class Denoiser(nn.Module):
    """A complex gain for every bin of the noisy spectrogram."""

    def __init__(self, fixed: bool = False) -> None:
        super().__init__()
        self.gain = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1))
        self.head = PhaseHead(fixed)

    def forward(self, bands: Tensor) -> tuple[Tensor, Tensor]:
        gain = self.gain(bands)
        real = gain[:, 0] * bands[:, 0] - gain[:, 1] * bands[:, 1]
        imag = gain[:, 0] * bands[:, 1] + gain[:, 1] * bands[:, 0]
        return self.head(torch.stack([real, imag], dim=1))


def train(steps: int, fixed: bool) -> None:
    """A few steps, printed; a step with a bad gradient is skipped."""
    torch.manual_seed(0)
    model = Denoiser(fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        clean = plucked(torch.empty(2).uniform_(200.0, 800.0))
        hum = 0.1 * plucked(torch.full((2,), 100.0))
        with torch.no_grad():
            wanted = PhaseHead(fixed)(subbands(clean))
        magnitude, phase = model(subbands(clean + hum))
        loss = F.l1_loss(magnitude, wanted[0]) + 0.1 * (1 - torch.cos(phase - wanted[1])).mean()
        optimizer.zero_grad()
        loss.backward()
        bad = [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
        if bad:
            print(f"step {step}: loss {loss.item():.4f}, skipped: bad gradients in {', '.join(bad)}")
            continue
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixed", action="store_true", help="keep the phase away from the origin")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    train(options.steps, options.fixed)
