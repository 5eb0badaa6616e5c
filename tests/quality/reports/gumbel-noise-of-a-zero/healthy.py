import torch
import torch.nn.functional as F
from torch import nn


class Gumbel:
    """Gumbel distribution with location and scale; X ~ Uniform(0, 1), Y = loc - scale * ln(-ln(X))."""

    def __init__(self, loc, scale):
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)

    def rsample(self):
        finfo = torch.finfo(self.scale.dtype)
        uni_dist = torch.empty_like(self.scale).uniform_().clamp(min=finfo.tiny)
        return self.loc - self.scale * torch.log(-uni_dist.log())


class DiscreteVAE(nn.Module):
    def __init__(self, pixels=48, variables=24, categories=64):
        super().__init__()
        self.variables, self.categories = variables, categories
        self.encoder = nn.Linear(pixels, variables * categories)
        self.codebook = nn.Linear(categories, 4, bias=False)
        self.decoder = nn.Linear(variables * 4, pixels)

    def forward(self, x, tau):
        logits = self.encoder(x).view(-1, self.variables, self.categories)
        noisy = Gumbel(logits, torch.ones((), dtype=logits.dtype)).rsample()
        # centred, so that annealing keeps the mean of the scores
        scores = (noisy - noisy.mean(-1, keepdim=True)) / tau
        codes = self.codebook(F.softmax(scores, dim=-1))
        return self.decoder(codes.flatten(1))


torch.manual_seed(0)
model = DiscreteVAE().half()  # half has 2**11 uniform numbers, and 0 is one of them
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(3):
    images = torch.rand(32, 48).half()
    loss = F.mse_loss(model(images, tau=1.0 / (1 + step)), images)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("reconstruction loss", loss.item())
