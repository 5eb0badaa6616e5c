import torch
from torch import nn


def log_predictive_normalizer(predicted, log_likelihood):
    top = log_likelihood.max()
    return torch.log((predicted * torch.exp(log_likelihood - top)).sum()) + top


def condition_on(predicted, log_likelihood):
    weights = predicted * torch.exp(log_likelihood - log_likelihood.max())
    return weights / weights.sum()


def hmm_filter(initial, transition, log_likelihoods):
    filtered, log_c, predicted = [], [], initial
    for log_likelihood in log_likelihoods:
        log_c.append(log_predictive_normalizer(predicted, log_likelihood))
        filtered.append(condition_on(predicted, log_likelihood))
        predicted = filtered[-1] @ transition
    return torch.stack(filtered), torch.stack(log_c)


def hmm_smoother(initial, transition, log_likelihoods):
    """Posterior of the states given the whole sequence: products of transition matrices, scanned backward."""
    filtered, log_c = hmm_filter(initial, transition, log_likelihoods)
    log_col = log_likelihoods[1:] - log_c[1:, None]
    col_scale = torch.exp(log_col)
    matrices = transition * col_scale[:, None, :]
    beta = torch.ones_like(initial)
    betas = [beta]
    for matrix in matrices.flip(0):
        beta = matrix @ beta
        beta = beta / beta.sum()
        betas.append(beta)
    smoothed = filtered * torch.stack(betas[::-1])
    return smoothed / smoothed.sum(dim=-1, keepdim=True), log_c.sum()


class Recognizer(nn.Module):
    """Gaussian emissions around learned levels."""

    def __init__(self, states):
        super().__init__()
        self.level = nn.Parameter(torch.linspace(-2.0, 2.0, states))
        self.log_precision = nn.Parameter(torch.zeros(states))

    def forward(self, observed):
        squared = (observed[:, None] - self.level).square()
        return 0.5 * self.log_precision - 0.5 * self.log_precision.exp() * squared


torch.manual_seed(0)
transition = torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])  # left to right
initial = torch.tensor([1.0, 0.0, 0.0])
observed = torch.tensor([-2.1, 50.0, -1.8, -0.2, 0.1, 1.9, 2.2])  # a click, at the start of the word
model = Recognizer(3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(3):
    smoothed, evidence = hmm_smoother(initial, transition, model(observed))
    expected = (smoothed.detach() * model(observed)).sum()
    optimizer.zero_grad()
    (-expected).backward()
    optimizer.step()
    print(step, "evidence", evidence.item(), "expected", expected.item())
