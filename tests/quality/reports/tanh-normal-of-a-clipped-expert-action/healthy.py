import torch
from torch import nn
from torch.distributions import Independent, Normal


class TanhNormal:
    def __init__(self, loc: torch.Tensor, scale: torch.Tensor) -> None:
        self._normal = Independent(Normal(loc, scale), 1)

    def log_prob(self, value: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
        pre_tanh = torch.log((1 + epsilon + value) / (1 + epsilon - value)) / 2
        base = self._normal.log_prob(pre_tanh)
        return base - torch.log(1 - value**2 + epsilon).sum(dim=-1)


class GaussianPolicy(nn.Module):
    def __init__(self, obs_dim: int, act_dim: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 32), nn.Tanh(), nn.Linear(32, act_dim))
        self.log_std = nn.Parameter(torch.zeros(act_dim))

    def forward(self, obs: torch.Tensor) -> TanhNormal:
        return TanhNormal(self.body(obs), self.log_std.exp())


class BehaviourCloning:
    def __init__(self, policy: GaussianPolicy, lr: float = 1e-3) -> None:
        self.policy = policy
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=lr)

    def train_once(self, obs: torch.Tensor, expert: torch.Tensor) -> float:
        loss = -self.policy(obs).log_prob(expert).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(1)
    algo = BehaviourCloning(GaussianPolicy(4, 2))
    for _ in range(3):
        obs = torch.randn(32, 4)
        expert = (obs[:, :2] * 0.6).clamp(-1.0, 1.0)
        print(algo.train_once(obs, expert))
