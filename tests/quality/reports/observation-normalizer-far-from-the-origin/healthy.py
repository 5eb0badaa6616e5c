"""An actor-critic with normalized vector observations."""

import torch
from torch import nn


class Normalizer(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_variance", torch.ones(size))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        std = torch.sqrt(self.running_variance / (self.steps + 1))
        return ((inputs - self.running_mean) / std).clamp(-5, 5)

    def update(self, inputs: torch.Tensor) -> None:
        if self.steps == 0:
            self.steps = self.steps + len(inputs)
            self.running_mean = inputs.mean(0)
            self.running_variance = inputs.var(0) * (self.steps + 1)
            return
        new_steps = self.steps + len(inputs)
        to_old_mean = inputs - self.running_mean
        new_mean = self.running_mean + (to_old_mean / new_steps).sum(0)
        to_new_mean = inputs - new_mean
        self.running_variance = self.running_variance + (to_new_mean * to_old_mean).sum(0)
        self.running_mean = new_mean
        self.steps = new_steps


class ActorCritic(nn.Module):
    def __init__(self, obs_size: int, actions: int) -> None:
        super().__init__()
        self.normalizer = Normalizer(obs_size)
        self.body = nn.Sequential(nn.Linear(obs_size, 32), nn.SiLU())
        self.policy = nn.Linear(32, actions)
        self.value = nn.Linear(32, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(self.normalizer(obs))
        return self.policy(hidden).log_softmax(-1), self.value(hidden).squeeze(-1)


def trajectory(length: int) -> torch.Tensor:
    """The walker's absolute position on the track, and its joints."""
    position = 1800.0 + 0.002 * torch.randn(length, 3)
    return torch.cat([position, torch.randn(length, 2)], dim=1)


torch.manual_seed(53)
agent = ActorCritic(5, 3)
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4)
for update in range(3):
    obs = trajectory(1000)
    agent.normalizer.update(obs)
    log_probs, values = agent(obs)
    actions = torch.distributions.Categorical(logits=log_probs, validate_args=False).probs.argmax(-1)
    returns = obs[:, 3] + (actions == 1)
    advantage = (returns - values).detach()
    loss = -(log_probs.gather(1, actions[:, None])[:, 0] * advantage).mean() + (returns - values).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"update {update}: loss {loss.item():.4f}")
