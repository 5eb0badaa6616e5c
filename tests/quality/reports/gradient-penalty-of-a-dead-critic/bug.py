import torch
from torch import autograd, nn


class Critic(nn.Module):
    def __init__(self, pixels):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(pixels, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.main(x.flatten(1))


class WGAN:
    def __init__(self, pixels=64, latent_dim=8, gp_weight=10.0, d_steps=3):
        self.latent_dim, self.gp_weight, self.d_steps = latent_dim, gp_weight, d_steps
        self.critic = Critic(pixels)
        self.generator = nn.Sequential(nn.Linear(latent_dim, pixels), nn.Tanh())
        self.d_optimizer = torch.optim.Adam(self.critic.parameters(), lr=2e-4, betas=(0.5, 0.9))
        self.g_optimizer = torch.optim.Adam(self.generator.parameters(), lr=2e-4, betas=(0.5, 0.9))

    def gradient_penalty(self, real, fake):
        alpha = torch.rand(len(real), 1)
        interpolated = (real + alpha * (fake - real)).requires_grad_()
        pred = self.critic(interpolated)
        (grads,) = autograd.grad(pred.sum(), interpolated, create_graph=True)
        norm = torch.sqrt(torch.sum(torch.square(grads), dim=1))
        return torch.mean((norm - 1.0) ** 2)

    def train_step(self, real):
        for _ in range(self.d_steps):
            fake = self.generator(torch.randn(len(real), self.latent_dim)).detach()
            d_cost = self.critic(fake).mean() - self.critic(real).mean()
            d_loss = d_cost + self.gradient_penalty(real, fake) * self.gp_weight
            self.d_optimizer.zero_grad()
            d_loss.backward()
            self.d_optimizer.step()
        g_loss = -self.critic(self.generator(torch.randn(len(real), self.latent_dim))).mean()
        self.g_optimizer.zero_grad()
        g_loss.backward()
        self.g_optimizer.step()
        return {"d_loss": d_loss.item(), "g_loss": g_loss.item()}


torch.manual_seed(0)
wgan = WGAN()
with torch.no_grad():
    wgan.critic.main[0].bias.fill_(-2.0)  # most units are off: some images excite none at all
for _ in range(2):
    print(wgan.train_step(torch.rand(16, 64) * 2 - 1))
