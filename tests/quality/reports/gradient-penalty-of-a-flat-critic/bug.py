import torch
from torch import nn


class WGAN:
    def __init__(self, discriminator: nn.Module, generator: nn.Module, latent_dim: int) -> None:
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.gp_weight = 10.0
        self.d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.9))
        self.g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.9))

    def gradient_penalty(self, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
        alpha = torch.rand(len(real), 1, 1, 1)
        interpolated = (real + alpha * (fake - real)).requires_grad_()
        prediction = self.discriminator(interpolated)
        (grads,) = torch.autograd.grad(prediction.sum(), interpolated, create_graph=True)
        norm = torch.sqrt(torch.sum(grads**2, dim=(1, 2, 3)))
        return ((norm - 1.0) ** 2).mean()

    def train_step(self, real: torch.Tensor) -> dict[str, float]:
        for _ in range(2):
            fake = self.generator(torch.randn(len(real), self.latent_dim)).detach()
            d_cost = self.discriminator(fake).mean() - self.discriminator(real).mean()
            d_loss = d_cost + self.gp_weight * self.gradient_penalty(real, fake)
            self.d_optimizer.zero_grad()
            d_loss.backward()
            self.d_optimizer.step()
        g_loss = -self.discriminator(self.generator(torch.randn(len(real), self.latent_dim))).mean()
        self.g_optimizer.zero_grad()
        g_loss.backward()
        self.g_optimizer.step()
        return {"d_loss": d_loss.item(), "g_loss": g_loss.item()}


torch.manual_seed(43)
features = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten())
critic = nn.Sequential(features, nn.Linear(36, 6), nn.ReLU(), nn.Linear(6, 1))
generator = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))
wgan = WGAN(critic, generator, latent_dim=8)
nn.init.constant_(critic[1].bias, -0.35)
images = torch.rand(64, 1, 8, 8) * 2 - 1
for batch in images.split(16):
    print(wgan.train_step(batch))
