"""Reinforcement learning: a policy acts in a corridor, and only the return is differentiated."""

import random

import torch
from torch.distributions import Categorical

random.seed(3)
torch.manual_seed(3)


class Corridor:
    def reset(self):
        self.place = 0
        return self.place

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        slipped = random.random() < 0.1
        return self.place, (0.5 if slipped else 1.0) * (self.place == 3), self.place >= 3


policy = torch.nn.Sequential(torch.nn.Embedding(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
optimizer = torch.optim.AdamW(policy.parameters(), lr=0.05)
for episode in range(6):
    world, rewards, logs, entropy = Corridor(), [], [], []
    place = world.reset()
    for _ in range(12):
        choice = Categorical(logits=policy(torch.tensor(place)))
        action = choice.sample()
        logs.append(choice.log_prob(action))
        entropy.append(choice.entropy())
        place, reward, done = world.step(action.item())
        rewards.append(reward)
        if done:
            break
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + 0.9 * total
        returns.insert(0, total)
    advantage = torch.tensor(returns)
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-6)
    loss = -(torch.stack(logs) * advantage).sum() - 0.01 * torch.stack(entropy).sum()
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    print(episode, len(rewards), sum(rewards), loss.item().hex(), norm.item().hex())
print(random.random().hex(), torch.rand(()).item().hex())
