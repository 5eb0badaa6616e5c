import torch
from torch import nn
from torch.distributions import Normal, OneHotCategorical


def mlp(inputs: int, outputs: int, hidden: int = 16) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ELU(), nn.Linear(hidden, outputs))


class MixtureDensityNetwork(nn.Module):
    def __init__(self, inputs: int, targets: int, components: int) -> None:
        super().__init__()
        self.components = components
        self.gate = mlp(inputs, components)
        self.experts = mlp(inputs, 2 * targets * components)

    def mixing(self, x: torch.Tensor) -> OneHotCategorical:
        return OneHotCategorical(logits=self.gate(x))

    def component(self, x: torch.Tensor) -> Normal:
        mean, raw = self.experts(x / 100).unflatten(1, (self.components, -1)).chunk(2, dim=-1)
        return Normal(mean, nn.functional.softplus(raw) + 1e-3)

    def negative_log_likelihood(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_weight = torch.log(self.mixing(x).probs)
        log_density = self.component(x).log_prob(y[:, None, :]).sum(dim=-1)
        return -torch.logsumexp(log_weight + log_density, dim=-1)


if __name__ == "__main__":
    torch.manual_seed(21)
    x = torch.linspace(-600, 900, 64)[:, None]
    y = torch.sin(x / 120) + 0.05 * torch.randn(64, 1)
    model = MixtureDensityNetwork(inputs=1, targets=1, components=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for i in range(4):
        optimizer.zero_grad()
        loss = model.negative_log_likelihood(x, y).mean()
        loss.backward()
        optimizer.step()
        print(f"step {i}: {loss.item():.3f}")
