"""Train a spectral mask that takes noise off an EEG, and export it to ONNX with both of torch's exporters.

The network masks the magnitude of each frequency and puts it together again with the phase. PyTorch gives finite
numbers; the model of the TorchScript exporter gives NaN for the very same recording.
``python export.py`` shows what a person sees and writes the models, ``python export.py --fixed`` with the mend.
"""

from __future__ import annotations

import argparse
import logging
import math
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn
from torch.nn import functional as F

SAMPLES = 1024
"""The length that the model was made for; a shorter recording is filled up with silence."""
MODELS = Path(__file__).parent / "models"
EXPORTERS = {"torchscript.onnx": False, "default.onnx": True}


class Spectrum(nn.Module):
    """The short-time Fourier transform as a convolution: real and imaginary parts, and back by overlap and add."""

    def __init__(self, size: int = 64, hop: int = 16) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        window = torch.hann_window(size)
        angle = 2 * math.pi * torch.arange(size // 2 + 1)[:, None] * torch.arange(size)[None] / size
        self.register_buffer("cosine", (angle.cos() * window)[:, None])
        self.register_buffer("sine", (-angle.sin() * window)[:, None])
        weight = torch.full((size // 2 + 1, 1), 2.0 / size)
        weight[0] = weight[-1] = 1.0 / size
        self.register_buffer("weight", weight)
        self.register_buffer("window", (window**2)[None, None])

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        wave = F.pad(wave[:, None], (self.size // 2, self.size // 2))
        return F.conv1d(wave, self.cosine, stride=self.hop), F.conv1d(wave, self.sine, stride=self.hop)

    def inverse(self, real: Tensor, imag: Tensor) -> Tensor:
        wave = F.conv_transpose1d(real * self.weight, self.cosine, stride=self.hop)
        wave = wave + F.conv_transpose1d(imag * self.weight, self.sine, stride=self.hop)
        window_sum = F.conv_transpose1d(torch.ones_like(real[:, :1]), self.window, stride=self.hop)
        half = self.size // 2
        return wave[:, 0, half:-half] / window_sum[:, 0, half:-half]


class Polar(nn.Module):
    """Magnitude and phase of a complex number."""

    def forward(self, real: Tensor, imag: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sqrt(real**2 + imag**2 + 1e-12), torch.atan2(imag, real)


class Mask(nn.Module):
    """How much of each frequency is signal, from the magnitudes around it."""

    def __init__(self, frequencies: int = 33, width: int = 48) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(frequencies, width, 5, padding=2), nn.ReLU(), nn.Conv1d(width, frequencies, 5, padding=2)
        )

    def forward(self, magnitude: Tensor) -> Tensor:
        return torch.sigmoid(self.layers(torch.log1p(magnitude)))


class Denoiser(nn.Module):
    """A recording without its noise, as loud as it was."""

    def __init__(self, fixed: bool = False) -> None:
        super().__init__()
        self.spectrum = Spectrum()
        self.polar = Polar()
        self.mask = Mask()
        self.fixed = fixed

    def forward(self, wave: Tensor) -> Tensor:
        real, imag = self.spectrum(wave)
        magnitude, phase = self.polar(real, imag)
        mask = self.mask(magnitude)
        if self.fixed:
            clean = self.spectrum.inverse(mask * real, mask * imag)
        else:
            masked = mask * magnitude
            clean = self.spectrum.inverse(masked * torch.cos(phase), masked * torch.sin(phase))
        loudness = wave.square().mean(-1, keepdim=True).sqrt()
        return clean * loudness / clean.square().mean(-1, keepdim=True).sqrt()


def recordings() -> Tensor:
    """Four channels of an EEG of 800 samples, each of zero mean and unit variance: matplotlib's sample data."""
    file = Path(matplotlib.get_data_path(), "sample_data", "eeg.dat")
    waves = torch.from_numpy(np.fromfile(file, dtype=np.float64).reshape(-1, 4).T.astype(np.float32))
    return (waves - waves.mean(-1, keepdim=True)) / waves.std(-1, keepdim=True)


def trained(waves: Tensor, fixed: bool, steps: int = 60) -> Denoiser:
    """A denoiser after a few steps on noisy recordings."""
    torch.manual_seed(0)
    model = Denoiser(fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = F.mse_loss(model(waves + 0.5 * torch.randn_like(waves)), waves)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def told(wave: np.ndarray) -> str:
    """What one sees of a result."""
    bad = int((~np.isfinite(wave)).sum())
    return (
        f"NaN in {bad:,} of {wave.size:,} samples" if bad else f"finite, between {wave.min():.1f} and {wave.max():.1f}"
    )


def main() -> None:
    """Parse the options, train, export, and run what was exported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixed", action="store_true", help="mask the two parts themselves, without the phase")
    parser.add_argument("--to", type=Path, default=MODELS, help="the folder to write the models to")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    waves = recordings()
    model = trained(waves, options.fixed)
    recording = F.pad(waves[:1], (0, SAMPLES - waves.shape[-1]))
    options.to.mkdir(parents=True, exist_ok=True)
    np.savez(options.to / "inputs.npz", wave=recording.numpy())
    with torch.no_grad():
        print("PyTorch         ", told(model(recording).numpy()))
    for name, dynamo in EXPORTERS.items():
        file = str(options.to / name)
        torch.onnx.export(
            model,
            (recording,),
            file,
            input_names=["wave"],
            output_names=["clean"],
            dynamo=dynamo,
            verbose=False,
            external_data=False,
        )
        (clean,) = onnxruntime.InferenceSession(file).run(None, {"wave": recording.numpy()})
        print(f"{name:16}", told(np.asarray(clean)))


if __name__ == "__main__":
    main()
