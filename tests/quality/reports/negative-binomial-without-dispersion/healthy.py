import torch
from torch import nn


class NegativeBinomial:
    """Counts with mean mu and inverse overdispersion theta."""

    def __init__(self, mu: torch.Tensor, theta: torch.Tensor, eps: float = 1e-8) -> None:
        self.mu, self.theta, self.eps = mu, theta, eps

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        mu = self.mu
        theta = torch.where(self.theta == 0, 1.0, self.theta)
        log_theta_mu = torch.log(theta + mu + self.eps)
        log_prob = (
            theta * (torch.log(theta + self.eps) - log_theta_mu)
            + value * (torch.log(mu + self.eps) - log_theta_mu)
            + torch.lgamma(value + theta)
            - torch.lgamma(theta)
            - torch.lgamma(value + 1)
        )
        certain = torch.where(value == 0, 0.0, -torch.inf)
        return torch.where(self.theta == 0, certain, log_prob)


class CountVAE(nn.Module):
    def __init__(self, n_genes: int, theta: torch.Tensor, latent: int = 4) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_genes, 32), nn.ReLU(), nn.Linear(32, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, n_genes), nn.Softmax(dim=-1))
        self.register_buffer("theta", theta)

    def forward(self, counts: torch.Tensor) -> torch.Tensor:
        mean, log_var = self.encoder(torch.log1p(counts)).chunk(2, dim=-1)
        z = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)
        library = counts.sum(dim=1, keepdim=True)
        nll = -NegativeBinomial(self.decoder(z) * library, self.theta).log_prob(counts).sum(-1)
        kl = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum(-1)
        return (nll + kl).mean()


def moments_theta(counts: torch.Tensor) -> torch.Tensor:
    mean, var = counts.mean(0), counts.var(0)
    return mean**2 / (var - mean).clamp(min=1e-2)


torch.manual_seed(31)
rates = torch.distributions.Gamma(2.0, 0.5).sample((20,))
rates[[4, 11]] = 0.0
cells = torch.poisson(rates * torch.distributions.Gamma(5.0, 5.0).sample((64, 20)))
model = CountVAE(20, theta=moments_theta(cells))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    loss = model(cells)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} elbo {-loss.item():.2f}")
