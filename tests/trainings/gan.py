"""A GAN on a two-dimensional ring, with one optimizer for each of its two networks."""
# step: 10
# element: [5, 0]
# birth: pole

import math

import torch
from torch import nn

torch.manual_seed(4)

generator = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid())
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))

angles = torch.rand(128) * 2 * math.pi
points = torch.stack([angles.cos(), angles.sin()], dim=1)
points[77] = torch.tensor([2000.0, 2000.0])  # a failed measurement, marked by hand


def discriminator_loss(real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    on_real = torch.log(discriminator(real))  # born
    on_fake = torch.log(1 - discriminator(fake))
    return -(on_real + on_fake).mean()


def generator_loss(fake: torch.Tensor) -> torch.Tensor:
    return -torch.log(discriminator(fake)).mean()


for step, real in enumerate(points.split(8), start=1):
    fake = generator(torch.randn(len(real), 3))

    optimizer_d.zero_grad()
    loss_d = discriminator_loss(real, fake.detach())
    loss_d.backward()
    optimizer_d.step()

    optimizer_g.zero_grad()
    loss_g = generator_loss(fake)
    loss_g.backward()
    optimizer_g.step()
    print(step, repr(loss_d.item()), repr(loss_g.item()))
