import torch
from torch import nn


def polynomial_decay(learning_rate, global_step, decay_steps, end_learning_rate=1e-4, power=1.0, cycle=False):
    """The learning rate at a step; with cycle the period is made longer each time its end has been reached."""
    global_step = torch.as_tensor(float(global_step))
    decay_steps = torch.as_tensor(float(decay_steps))
    if cycle:
        decay_steps = decay_steps * torch.ceil(global_step / decay_steps)
    else:
        global_step = torch.minimum(global_step, decay_steps)
    p = global_step / decay_steps
    return (learning_rate - end_learning_rate) * (1 - p) ** power + end_learning_rate


class MomentumOptimizer:
    """Plain momentum whose learning rate is asked for at every step."""

    def __init__(self, params, schedule, momentum=0.9):
        self.params, self.schedule, self.momentum = list(params), schedule, momentum
        self.velocity = [torch.zeros_like(p) for p in self.params]
        self.global_step = 0

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        lr = self.schedule(self.global_step)
        for p, v in zip(self.params, self.velocity):
            v.mul_(self.momentum).add_(p.grad)
            p.sub_(lr * v)
        self.global_step += 1
        return lr


def make_moons(count=64):
    angle = torch.rand(count) * torch.pi
    label = torch.randint(0, 2, (count,))
    sign = 1.0 - 2.0 * label
    points = torch.stack([angle.cos() + label, sign * angle.sin() + 0.4 * label], dim=1)
    return points + 0.05 * torch.randn(count, 2), label


torch.manual_seed(0)
points, labels = make_moons()
model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = MomentumOptimizer(
    model.parameters(), lambda step: polynomial_decay(0.1, step, decay_steps=20, power=0.5, cycle=True)
)
for epoch in range(5):
    loss = nn.functional.cross_entropy(model(points), labels)
    optimizer.zero_grad()
    loss.backward()
    lr = optimizer.step()
    print(epoch, "lr", lr.item(), "loss", loss.item())
