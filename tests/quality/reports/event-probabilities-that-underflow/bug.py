"""Onsets of events in trials of a recording: a hidden multivariate pattern, fitted by EM."""

import torch


def forward_backward(gains: torch.Tensor, durations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Probability of each event at each sample, for trials of equal length: (trial, time, event)."""
    trials, time, events = gains.shape
    density = torch.exp(gains)
    forward = torch.zeros_like(density)
    backward = torch.zeros_like(density)
    steps = torch.arange(time)
    lag = (steps[:, None] - steps[None, :]).clamp(min=0)
    for e in range(events):
        arrive = durations[e][lag] * (steps[:, None] > steps[None, :])
        before = forward[..., e - 1] @ arrive.T if e else durations[e].expand(trials, -1)
        forward[..., e] = before * density[..., e]
    for e in reversed(range(events)):
        leave = durations[e + 1][lag] * (steps[:, None] > steps[None, :])
        if e == events - 1:
            backward[..., e] = durations[e + 1].flip(0)
        else:
            backward[..., e] = (backward[..., e + 1] * density[..., e + 1]) @ leave
    eventprobs = forward * backward
    likelihood = eventprobs.sum(dim=1, keepdim=True)
    return eventprobs / likelihood, likelihood[:, 0, 0].log().sum()


def gamma_durations(scales: list[float], time: int) -> torch.Tensor:
    grid = torch.arange(time) + 0.5
    density = torch.stack([(grid / s) * torch.exp(-grid / s) for s in scales])
    return density / density.sum(dim=1, keepdim=True)


def expectation_maximization(data: torch.Tensor, magnitudes: torch.Tensor, iterations: int) -> torch.Tensor:
    durations = gamma_durations([4.0, 5.0, 4.0], data.size(1))
    for i in range(iterations):
        distance = (data[:, :, None, :] - magnitudes).pow(2).sum(-1)
        probabilities, loglik = forward_backward(-distance, durations)
        magnitudes = torch.einsum("nte,ntc->ec", probabilities, data) / len(data)
        print(i, "loglik", loglik.item(), "magnitudes", magnitudes.norm(dim=1).tolist())
    return magnitudes


torch.manual_seed(139)
pattern = torch.tensor([[2.0, -1.0, 0.5], [-1.0, 1.5, 1.0]])
recording = 0.7 * torch.randn(10, 30, 3)
recording[:, 8] += pattern[0]
recording[:, 17] += pattern[1]
recording[3] += 9.0  # one trial with an artefact
expectation_maximization(recording, magnitudes=pattern * 0.8, iterations=3)
