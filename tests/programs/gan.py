"""A GAN: two networks, two optimizers, gradients that one step fills and the next throws away."""

import hashlib

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.1), nn.ReLU(), nn.utils.spectral_norm(nn.Linear(16, 1)))
for_generator = torch.optim.Adam(generator.parameters(), 1e-3, betas=(0.5, 0.9))
for_critic = torch.optim.RMSprop(critic.parameters(), 1e-3)
judged = nn.BCEWithLogitsLoss()

for step in range(5):
    real, noise = torch.randn(8, 2) + 3, torch.randn(8, 4)
    fake = generator(noise)
    for_critic.zero_grad()
    loss = judged(critic(real), torch.ones(8, 1)) + judged(critic(fake.detach()), torch.zeros(8, 1))
    # the penalty's gradient is differentiated again
    mixed = torch.lerp(real, fake.detach(), torch.rand(8, 1)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    (loss + (slope.norm(dim=1) - 1).square().mean()).backward()
    for_critic.step()
    for_generator.zero_grad(set_to_none=False)
    fooled = judged(critic(fake), torch.ones(8, 1))
    fooled.backward()
    for_generator.step()
    print(step, loss.item().hex(), fooled.item().hex())

weights = [p for net in (generator, critic) for p in net.state_dict().values()]
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in weights)).hexdigest())
