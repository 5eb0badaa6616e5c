"""Frame-wise pitch tracking: frames are normalised one by one before the network sees them."""

import numpy as np
import torch

WINDOW_SIZE = 256
HOP = 128
PITCH_BINS = 36


def preprocess(audio):
    """Cut the audio into frames of zero mean and unit variance."""
    frames = (
        torch.nn.functional.unfold(audio[:, None, None, :], kernel_size=(1, WINDOW_SIZE), stride=(1, HOP))
        .transpose(1, 2)
        .reshape(-1, WINDOW_SIZE)
    )

    frames = frames - frames.mean(dim=1, keepdim=True)
    frames = frames / torch.max(torch.tensor(1e-10), frames.std(dim=1, keepdim=True))
    return frames


class Crepe(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(1, 8, 32, stride=8)
        self.classifier = torch.nn.Linear(8 * 29, PITCH_BINS)

    def forward(self, frames):
        x = torch.relu(self.conv(frames[:, None]))
        return torch.sigmoid(self.classifier(x.flatten(1)))


def predict(model, audio):
    with torch.inference_mode():
        probabilities = model(preprocess(audio))
    bins = torch.arange(PITCH_BINS)
    cents = (probabilities * bins).sum(1) / probabilities.sum(1)
    periodicity = probabilities.max(dim=1).values
    return cents, periodicity


torch.manual_seed(0)
time = np.arange(4096) / 16000
voice = np.sin(2 * np.pi * 220 * time).astype(np.float32)
voice[1500:2600] = 0  # a rest

model = Crepe().eval()
pitch, periodicity = predict(model, torch.from_numpy(voice)[None])
print("mean pitch bin:", pitch.mean().item(), "voiced:", int((periodicity > 0.5).sum()), "of", len(pitch))
