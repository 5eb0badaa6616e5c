import torch
from torch import nn
from torch.distributions import Normal


class SoftPolicy(nn.Module):
    """A squashed Gaussian policy for an action space [low, high]."""

    def __init__(self, state_dim: int, low: torch.Tensor, high: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", (high - low) / 2)
        self.register_buffer("center", (high + low) / 2)
        self.net = nn.Sequential(nn.Linear(state_dim, 32), nn.ReLU(), nn.Linear(32, 2 * len(low)))

    def forward(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.net(state).chunk(2, dim=-1)
        normal = Normal(mean, log_std.clamp(-20, 2).exp())
        raw = normal.rsample()
        action = torch.tanh(raw) * self.scale + self.center
        log_prob = normal.log_prob(raw)
        log_prob = log_prob - torch.log(1 - torch.tanh(raw).pow(2) + 1e-6)
        return action, log_prob.sum(dim=-1)


class Critic(nn.Module):
    def __init__(self, state_dim: int, action_dim: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(state_dim + action_dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat([state, action], dim=-1)).squeeze(-1)


def main() -> None:
    torch.manual_seed(3)
    policy = SoftPolicy(3, low=torch.tensor([-2.0]), high=torch.tensor([2.0]))
    critic = Critic(3, 1)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    temperature = 0.2
    for _ in range(5):
        states = torch.randn(64, 3)
        actions, log_probs = policy(states)
        loss = (temperature * log_probs - critic(states, actions)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("actor loss", loss.item())


if __name__ == "__main__":
    main()
