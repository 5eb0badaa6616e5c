import torch
from torch import nn
from torch.distributions import Normal


class ActorCritic(nn.Module):
    def __init__(self, num_obs, num_actions):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(num_obs, 32), nn.ELU(), nn.Linear(32, num_actions))
        self.log_std = nn.Parameter(torch.full((num_actions,), -70.0))  # a long training before this one

    def distribution(self, obs):
        mean = self.actor(obs)
        std = torch.exp(self.log_std).expand_as(mean)
        return Normal(mean, std, validate_args=False)


torch.manual_seed(4)
policy = ActorCritic(8, 3)
with torch.no_grad():
    policy.log_std[1] = -105.0
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for iteration in range(3):
    obs = torch.randn(16, 8)
    dist = policy.distribution(obs)
    actions = (policy.actor(obs) + 1e-30 * torch.randn(16, 3)).detach()
    log_prob = dist.log_prob(actions).sum(dim=-1)
    advantage = torch.randn(16)
    surrogate = -(advantage * torch.exp(log_prob - log_prob.detach())).mean()
    optimizer.zero_grad()
    surrogate.backward()
    optimizer.step()
    print(iteration, surrogate.item())
