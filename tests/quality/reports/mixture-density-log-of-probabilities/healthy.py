import torch
from torch import nn
from torch.distributions import Normal, OneHotCategorical


class CategoricalNetwork(nn.Module):
    def __init__(self, in_dim: int, out_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(in_dim, hidden_dim), nn.ELU(), nn.Linear(hidden_dim, out_dim))

    def forward(self, x: torch.Tensor) -> OneHotCategorical:
        return OneHotCategorical(logits=self.network(x))


class NormalNetwork(nn.Module):
    def __init__(self, in_dim: int, out_dim: int, n_components: int, hidden_dim: int) -> None:
        super().__init__()
        self.n_components = n_components
        self.network = nn.Sequential(
            nn.Linear(in_dim, hidden_dim), nn.ELU(), nn.Linear(hidden_dim, 2 * out_dim * n_components)
        )

    def forward(self, x: torch.Tensor) -> Normal:
        params = self.network(x / 100).unflatten(1, (self.n_components, -1))
        mean, sd = params.chunk(2, dim=-1)
        return Normal(mean, nn.functional.elu(sd) + 1 + 1e-3)


class MixtureDensityNetwork(nn.Module):
    def __init__(self, dim_in: int, dim_out: int, n_components: int, hidden_dim: int = 16) -> None:
        super().__init__()
        self.pi = CategoricalNetwork(dim_in, n_components, hidden_dim)
        self.normal = NormalNetwork(dim_in, dim_out, n_components, hidden_dim)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pi, normal = self.pi(x), self.normal(x)
        loglik = normal.log_prob(y[:, None, :]).sum(dim=2)
        return -torch.logsumexp(torch.log_softmax(pi.logits, dim=1) + loglik, dim=1)


if __name__ == "__main__":
    torch.manual_seed(21)
    x = torch.linspace(-600, 900, 64)[:, None]
    y = torch.sin(x / 120) + 0.05 * torch.randn(64, 1)
    model = MixtureDensityNetwork(1, 1, n_components=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for i in range(4):
        optimizer.zero_grad()
        loss = model.loss(x, y).mean()
        loss.backward()
        optimizer.step()
        print(f"Iter: {i}\tLoss: {loss.item():.2f}")
