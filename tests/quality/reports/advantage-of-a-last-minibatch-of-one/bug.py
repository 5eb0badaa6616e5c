import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, observations=4, actions=2, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, hidden), nn.Tanh())
        self.policy, self.value = nn.Linear(hidden, actions), nn.Linear(hidden, 1)

    def evaluate_actions(self, obs, actions):
        latent = self.body(obs)
        distribution = Categorical(logits=self.policy(latent))
        return self.value(latent).squeeze(-1), distribution.log_prob(actions), distribution.entropy()


class RolloutBuffer:
    def __init__(self, model, n_steps):
        self.obs = torch.randn(n_steps, 4)
        self.actions = torch.randint(2, (n_steps,))
        with torch.no_grad():
            values, self.log_prob, _ = model.evaluate_actions(self.obs, self.actions)
        self.returns = values + torch.randn(n_steps)
        self.advantages = self.returns - values

    def get(self, batch_size):
        order = torch.randperm(len(self.obs))
        for start in range(0, len(order), batch_size):
            i = order[start : start + batch_size]
            yield self.obs[i], self.actions[i], self.log_prob[i], self.advantages[i], self.returns[i]


class PPO:
    clip_range, ent_coef, vf_coef, max_grad_norm = 0.2, 0.01, 0.5, 0.5

    def __init__(self, n_steps, batch_size):
        self.policy = ActorCritic()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-4, eps=1e-5)
        self.n_steps, self.batch_size = n_steps, batch_size

    def train(self, n_epochs):
        buffer = RolloutBuffer(self.policy, self.n_steps)
        for _ in range(n_epochs):
            for obs, actions, old_log_prob, advantages, returns in buffer.get(self.batch_size):
                values, log_prob, entropy = self.policy.evaluate_actions(obs, actions)
                advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
                ratio = torch.exp(log_prob - old_log_prob)
                clipped = torch.clamp(ratio, 1 - self.clip_range, 1 + self.clip_range)
                policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
                loss = policy_loss - self.ent_coef * entropy.mean()
                loss = loss + self.vf_coef * nn.functional.mse_loss(returns, values)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
print("loss", PPO(n_steps=65, batch_size=64).train(n_epochs=2))
