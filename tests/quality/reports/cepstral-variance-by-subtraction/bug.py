import numpy as np
import torch
from torch import nn


def feature_cmvn(feature):
    spk_mean = np.mean(feature, axis=0)
    spk_std = np.sqrt(np.mean(feature**2, axis=0) - spk_mean**2)
    return (feature - spk_mean) / spk_std


def log_energies(rng, frames):
    feature = rng.normal(-12.0, 2.5, (frames, 20)).astype(np.float32)
    feature[:, 17] = np.float32(-15.942385)  # nothing above 7 kHz: the floor of the filter bank
    feature[:, 17] += rng.normal(0.0, 1e-6, frames).astype(np.float32)
    return feature


rng = np.random.default_rng(11)
torch.manual_seed(0)
model = nn.LSTM(20, 16, batch_first=True)
head = nn.Linear(16, 30)
params = [*model.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(params, lr=0.01)
ctc = nn.CTCLoss(zero_infinity=True)
for step in range(3):
    feature = feature_cmvn(log_energies(rng, 57))
    inputs = torch.tensor(feature).unsqueeze(0)
    hidden, _ = model(inputs)
    logits = head(hidden).log_softmax(-1).transpose(0, 1)
    loss = ctc(logits, torch.randint(1, 30, (1, 8)), torch.tensor([57]), torch.tensor([8]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, "loss", float(loss))
