import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(0)


class Actor(nn.Module):
    def __init__(s):
        super().__init__()
        s.b = nn.Linear(4, 8)
        s.mu = nn.Linear(8, 2)
        s.ls = nn.Linear(8, 2)

    def forward(s, obs):
        obs = (obs - obs.mean(0)) / obs.std(0)  # born
        h = torch.tanh(s.b(obs))
        return Normal(s.mu(h), s.ls(h).exp())


a = Actor()
opt = torch.optim.Adam(a.parameters(), 3e-4)


def update(obs):
    d = a(obs)
    act = d.sample()
    adv = torch.randn(len(obs))
    loss = -(d.log_prob(act).sum(-1) * adv).mean() - 0.01 * d.entropy().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(a.parameters(), 0.5)
    opt.step()
    return loss.item()


rollout = torch.randn(33, 4)
for epoch in range(2):
    for start in range(0, 33, 16):
        print(epoch, update(rollout[start : start + 16]))
