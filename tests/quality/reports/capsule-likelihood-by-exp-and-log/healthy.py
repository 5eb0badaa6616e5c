"""Part capsules: every image is explained by a mixture of templates, with a learned width."""

import math

import torch
from torch import nn


class PartDecoder(nn.Module):
    def __init__(self, n_templates: int, size: int) -> None:
        super().__init__()
        self.templates = nn.Parameter(torch.rand(n_templates, size, size))
        self.log_std = nn.Parameter(torch.tensor(-0.9))

    def component_log_prob(self, images: torch.Tensor) -> torch.Tensor:
        std = self.log_std.exp()
        residual = (images[:, None] - self.templates[None]) / std
        pixel = -0.5 * residual**2 - self.log_std - 0.5 * math.log(2 * math.pi)
        return pixel.flatten(2).sum(-1)


class PartEncoder(nn.Module):
    def __init__(self, n_templates: int, size: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(size * size, 32), nn.ReLU(), nn.Linear(32, n_templates))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images).log_softmax(-1)


class PCAE(nn.Module):
    def __init__(self, n_templates: int = 6, size: int = 12) -> None:
        super().__init__()
        self.encoder = PartEncoder(n_templates, size)
        self.decoder = PartDecoder(n_templates, size)

    def log_prob(self, images: torch.Tensor) -> torch.Tensor:
        joint = self.encoder(images) + self.decoder.component_log_prob(images)
        return torch.logsumexp(joint, dim=-1)


def main() -> None:
    torch.manual_seed(17)
    shapes = torch.rand(3, 12, 12) * 0.2 + 0.4
    images = shapes[torch.randint(3, (48,))] + 0.02 * torch.randn(48, 12, 12)
    model = PCAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for epoch in range(24):
        loss = -model.log_prob(images).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
