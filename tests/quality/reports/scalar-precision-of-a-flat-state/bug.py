import math

import torch
from torch import nn


def cholesky(x):
    if x.size(-1) == 1:
        return x.sqrt()
    return torch.linalg.cholesky(x)


class Gaussian:
    """exp(log_normalizer - x' P x / 2 + x' info), kept in the natural parameters."""

    def __init__(self, log_normalizer, info_vec, precision):
        self.log_normalizer, self.info_vec, self.precision = log_normalizer, info_vec, precision

    def __add__(self, other):
        return Gaussian(
            self.log_normalizer + other.log_normalizer,
            self.info_vec + other.info_vec,
            self.precision + other.precision,
        )

    def event_logsumexp(self):
        chol = cholesky(self.precision)
        u = torch.linalg.solve_triangular(chol, self.info_vec.unsqueeze(-1), upper=False).squeeze(-1)
        log_det = chol.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        dim = self.info_vec.size(-1)
        return self.log_normalizer + 0.5 * (dim * math.log(2 * math.pi) + u.square().sum(-1)) - log_det


class LocalLevel(nn.Module):
    """Evidence per time step of a level that is seen through noise whose precision depends on a covariate."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Linear(2, 1)
        self.level = nn.Parameter(torch.zeros(1))

    def forward(self, covariates, observed):
        weight = torch.relu(self.gain(covariates))
        info = weight * (observed - self.level)
        constant = 0.5 * torch.log1p(weight).squeeze(-1) - 0.5 * (weight * (observed - self.level) ** 2).squeeze(-1)
        prior = Gaussian(torch.zeros(len(observed)), torch.zeros(len(observed), 1), torch.zeros(len(observed), 1, 1))
        likelihood = Gaussian(constant, info, weight.unsqueeze(-1))
        return (prior + likelihood).event_logsumexp()


torch.manual_seed(0)
covariates, observed = torch.randn(40, 2), torch.randn(40, 1) + 0.5
covariates[7] = -30.0  # the sensor was off: its precision is zero
model = LocalLevel()
nn.init.constant_(model.gain.weight, 0.05)
nn.init.constant_(model.gain.bias, 1.0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(3):
    loss = -model(covariates, observed).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
