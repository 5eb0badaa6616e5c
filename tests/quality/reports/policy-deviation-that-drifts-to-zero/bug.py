import math

import torch
from torch import nn


class TanhGaussianPolicyHead(nn.Module):
    """State-dependent mean, free log standard deviation."""

    def __init__(self, observations, actions, hidden=32):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(observations, hidden), nn.Tanh(), nn.Linear(hidden, actions))
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))

    def sample(self, obs):
        mean = self.mean(obs)
        z = mean + torch.exp(self.log_std) * torch.randn_like(mean)
        return z, torch.tanh(z)

    def evaluate(self, obs, z):
        std = torch.exp(self.log_std)
        centered = z - self.mean(obs)
        log_prob = -0.5 * (centered / std).square() - self.log_std - 0.5 * math.log(2 * math.pi)
        correction = 2 * (math.log(2) - z - nn.functional.softplus(-2 * z))
        entropy = (0.5 + 0.5 * math.log(2 * math.pi) + self.log_std).sum()
        return (log_prob - correction).sum(-1), entropy


class Pendulum:
    """One-step task: the closer the action is to what the observation asks for, the better."""

    def __init__(self, envs=64):
        self.obs = torch.randn(envs, 3)

    def reward(self, action):
        return -(action - torch.tanh(0.5 * self.obs[:, :2])).square().sum(-1)


def ppo_update(policy, optimizer, obs, z, advantage, epochs=2, clip=0.2, entropy_coef=-0.5):
    with torch.no_grad():
        old, _ = policy.evaluate(obs, z)
    for _ in range(epochs):
        log_prob, entropy = policy.evaluate(obs, z)
        ratio = torch.exp(log_prob - old)
        surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
        loss = -surrogate - entropy_coef * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
env, policy = Pendulum(), TanhGaussianPolicyHead(3, 2)
optimizer = torch.optim.Adam(
    [{"params": policy.mean.parameters(), "lr": 3e-4}, {"params": [policy.log_std], "lr": 0.5}]
)
for iteration in range(150):
    with torch.no_grad():
        z, action = policy.sample(env.obs)
        reward = env.reward(action)
    advantage = (reward - reward.mean()) / (reward.std() + 1e-8)
    loss = ppo_update(policy, optimizer, env.obs, z, advantage)
print("loss", loss, "log_std", policy.log_std.tolist())
