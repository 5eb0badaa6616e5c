import torch
import torch.nn as nn
from torch.distributions import Normal, OneHotCategorical


class MixtureDensityNetwork(nn.Module):
    """Bishop's network: [dim_in] -> a mixture of n_components normals of [dim_out]."""

    def __init__(self, dim_in, dim_out, n_components):
        super().__init__()
        self.pi_network = CategoricalNetwork(dim_in, n_components)
        self.normal_network = MixtureDiagNormalNetwork(dim_in, dim_out, n_components)

    def forward(self, x):
        return self.pi_network(x), self.normal_network(x)

    def loss(self, x, y):
        pi, normal = self.forward(x)
        loglik = normal.log_prob(y.unsqueeze(1).expand_as(normal.loc))
        loglik = torch.sum(loglik, dim=2)
        loss = -torch.logsumexp(torch.log(pi.probs) + loglik, dim=1)
        return loss


class MixtureDiagNormalNetwork(nn.Module):
    def __init__(self, in_dim, out_dim, n_components):
        super().__init__()
        self.n_components = n_components
        self.network = nn.Sequential(nn.Linear(in_dim, 8), nn.ELU(), nn.Linear(8, 2 * out_dim * n_components))

    def forward(self, x):
        params = self.network(x)
        mean, sd = torch.split(params, params.shape[1] // 2, dim=1)
        mean = torch.stack(mean.split(mean.shape[1] // self.n_components, 1))
        sd = torch.stack(sd.split(sd.shape[1] // self.n_components, 1))
        return Normal(mean.transpose(0, 1), torch.exp(sd).transpose(0, 1))


class CategoricalNetwork(nn.Module):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(in_dim, 8), nn.ELU(), nn.Linear(8, out_dim))

    def forward(self, x):
        params = self.network(x)
        return OneHotCategorical(probs=torch.softmax(params, dim=1), validate_args=False)


torch.manual_seed(2)
x = torch.randn(64, 1)
y = torch.cat([x.sin(), x.cos()], 1) + 0.05 * torch.randn(64, 2)
model = MixtureDensityNetwork(1, 2, 3)
with torch.no_grad():
    model.pi_network.network[2].weight *= 600.0
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
for i in range(3):
    optimizer.zero_grad()
    loss = model.loss(x, y).mean()
    loss.backward()
    optimizer.step()
    print("iter", i, "loss", round(loss.item(), 3))
