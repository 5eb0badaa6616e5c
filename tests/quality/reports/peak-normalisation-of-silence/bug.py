import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, samples, sample_rate):
        for transform in self.transforms:
            if random.random() < transform.p:
                samples = transform.apply(samples, sample_rate)
        return samples


class Normalize:
    """Apply a constant amount of gain, so that the highest signal level in the sound becomes 0 dBFS."""

    def __init__(self, p=0.5):
        self.p = p

    def apply(self, samples, sample_rate):
        max_amplitude = np.amax(np.abs(samples))
        return samples / max_amplitude


class FrequencyMask:
    def __init__(self, width=0.2, p=0.5):
        self.width, self.p = width, p

    def apply(self, samples, sample_rate):
        spectrum = np.fft.rfft(samples)
        start = random.randrange(int(len(spectrum) * (1 - self.width)))
        spectrum[start : start + int(len(spectrum) * self.width)] = 0
        return np.fft.irfft(spectrum, len(samples)).astype(np.float32)


class Clips(Dataset):
    def __init__(self, recording, augment, length=256):
        self.windows = recording[: len(recording) // length * length].reshape(-1, length)
        self.augment = augment

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        return torch.from_numpy(self.augment(self.windows[index], 16000)), index % 2


random.seed(0)
torch.manual_seed(0)
recording = np.random.default_rng(0).normal(0, 0.1, 16 * 256).astype(np.float32)
recording[9 * 256 : 11 * 256] = 0.0  # the microphone was muted
loader = DataLoader(Clips(recording, Compose([FrequencyMask(), Normalize(p=1.0)])), batch_size=4)

model = torch.nn.Sequential(torch.nn.Linear(256, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for samples, labels in loader:
    loss = torch.nn.functional.cross_entropy(model(samples), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
