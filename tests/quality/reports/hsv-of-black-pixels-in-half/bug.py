from __future__ import annotations

import math

import torch


def rgb_to_hsv(image: torch.Tensor, eps: float = 1e-8) -> torch.Tensor:
    """Image of shape (*, 3, H, W) in the range (0, 1); hue in radians."""
    max_rgb, argmax_rgb = image.max(-3)
    min_rgb, _ = image.min(-3)
    deltac = max_rgb - min_rgb

    v = max_rgb
    s = deltac / (max_rgb + eps)

    deltac = torch.where(deltac == 0, torch.ones_like(deltac), deltac)
    rc, gc, bc = torch.unbind(max_rgb.unsqueeze(-3) - image, dim=-3)
    h = torch.stack((bc - gc, (rc - bc) + 2.0 * deltac, (gc - rc) + 4.0 * deltac), dim=-3) / deltac.unsqueeze(-3)
    h = torch.gather(h, dim=-3, index=argmax_rgb.unsqueeze(-3)).squeeze(-3)
    return torch.stack((2.0 * math.pi * ((h / 6.0) % 1.0), s, v), dim=-3)


def hsv_to_rgb(image: torch.Tensor) -> torch.Tensor:
    h, s, v = image[..., 0, :, :] / (2 * math.pi), image[..., 1, :, :], image[..., 2, :, :]
    hi = torch.floor(h * 6) % 6
    f = (h * 6) % 6 - hi
    p, q, t = v * (1 - s), v * (1 - f * s), v * (1 - (1 - f) * s)
    table = torch.stack((v, q, p, p, t, v, t, v, v, q, p, p, p, p, t, v, v, q), dim=-3)
    index = torch.stack([hi, hi + 6, hi + 12], dim=-3).long()
    return torch.gather(table, -3, index)


class ColorJitter(torch.nn.Module):
    def __init__(self, hue: float) -> None:
        super().__init__()
        self.hue = hue

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        hsv = rgb_to_hsv(image)
        shift = (torch.rand(image.shape[0], 1, 1) * 2 - 1) * self.hue * 2 * math.pi
        hue = torch.fmod(hsv[:, 0] + shift.to(image.dtype), 2 * math.pi).abs()
        return hsv_to_rgb(torch.stack((hue, hsv[:, 1], hsv[:, 2]), dim=1))


torch.manual_seed(0)
batch = torch.rand(2, 3, 8, 8, dtype=torch.float16)
batch[:, :, :2] = 0  # letterbox
augmented = ColorJitter(hue=0.1)(batch)
print("mean of the augmented batch:", augmented.mean().item())
