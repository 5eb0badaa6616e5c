"""Expected tag counts of an HMM in NumPy, then a neural tagger that is fitted to them."""

import numpy as np
import torch
from torch import nn

NINF = -np.inf


def logsumexp2(values: np.ndarray) -> float:
    top = values.max()
    return np.log2(np.sum(2 ** (values - top))) + top


def forward_table(observed: list[int], prior: np.ndarray, trans: np.ndarray, emit: np.ndarray) -> np.ndarray:
    alpha = np.full((len(observed), len(prior)), NINF)
    alpha[0] = prior + emit[:, observed[0]]
    for t in range(1, len(observed)):
        for state in range(len(prior)):
            alpha[t, state] = logsumexp2(alpha[t - 1] + trans[:, state]) + emit[state, observed[t]]
    return alpha


def log2_table(probabilities: list[list[float]]) -> np.ndarray:
    p = np.asarray(probabilities)
    table = np.full(p.shape, NINF)
    table[p > 0] = np.log2(p[p > 0])
    return table


def main() -> None:
    prior = log2_table([[1.0, 0.0, 0.0]])[0]
    trans = log2_table([[0.6, 0.4, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]])
    emit = log2_table([[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.1, 0.4], [0.05, 0.05, 0.1, 0.8]])
    words = [2, 0, 1, 3, 3]
    alpha = forward_table(words, prior, trans, emit)
    filtered = 2 ** (alpha - np.array([[logsumexp2(row)] for row in alpha]))

    torch.manual_seed(59)
    targets = torch.from_numpy(filtered).float()
    tagger = nn.Sequential(nn.Embedding(4, 12), nn.Tanh(), nn.Linear(12, 3))
    optimizer = torch.optim.Adam(tagger.parameters(), lr=0.05)
    for epoch in range(3):
        loss = nn.functional.cross_entropy(tagger(torch.tensor(words)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
