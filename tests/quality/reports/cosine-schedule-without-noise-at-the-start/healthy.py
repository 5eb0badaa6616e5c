from __future__ import annotations

import math

import torch
import torch.nn as nn


def cosine_betas(num_train_timesteps: int, s: float = 8e-3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.linspace(0, num_train_timesteps, num_train_timesteps + 1)
    alphas_cumprod = torch.cos(((x / num_train_timesteps) + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas_cumprod /= alphas_cumprod[0].item()
    alphas = torch.clip(alphas_cumprod[1:] / alphas_cumprod[:-1], 0.0001, 0.9999)
    betas = 1.0 - alphas
    alphas = 1.0 - betas
    alphas_cumprod = torch.cumprod(alphas, dim=0)
    return betas, alphas, alphas_cumprod


class DDPMScheduler(nn.Module):
    def __init__(self, num_train_timesteps: int = 1000) -> None:
        super().__init__()
        self.num_train_timesteps = num_train_timesteps
        self.betas, self.alphas, self.alphas_cumprod = cosine_betas(num_train_timesteps)
        self.one = torch.tensor(1.0)

    def step(self, model_output: torch.Tensor, timestep: int, sample: torch.Tensor) -> torch.Tensor:
        alpha_prod_t = self.alphas_cumprod[timestep]
        alpha_prod_t_prev = self.alphas_cumprod[timestep - 1] if timestep > 0 else self.one
        beta_prod_t = 1 - alpha_prod_t
        beta_prod_t_prev = 1 - alpha_prod_t_prev

        pred_original_sample = (sample - beta_prod_t ** (0.5) * model_output) / alpha_prod_t ** (0.5)
        pred_original_sample = torch.clamp(pred_original_sample, -1, 1)

        pred_original_sample_coeff = (alpha_prod_t_prev ** (0.5) * self.betas[timestep]) / beta_prod_t
        current_sample_coeff = self.alphas[timestep] ** (0.5) * beta_prod_t_prev / beta_prod_t
        pred_prev_sample = pred_original_sample_coeff * pred_original_sample + current_sample_coeff * sample
        if timestep > 0:
            variance = (1 - alpha_prod_t_prev) / (1 - alpha_prod_t) * self.betas[timestep]
            pred_prev_sample = pred_prev_sample + variance**0.5 * torch.randn_like(sample)
        return pred_prev_sample


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 1, 3, padding=1))

    def forward(self, x: torch.Tensor, t: float) -> torch.Tensor:
        return self.conv(torch.cat([x, torch.full_like(x, t)], dim=1))


@torch.no_grad()
def sample(model: nn.Module, scheduler: DDPMScheduler, image: torch.Tensor) -> torch.Tensor:
    for t in reversed(range(scheduler.num_train_timesteps)):
        image = scheduler.step(model(image, t / scheduler.num_train_timesteps), t, image)
    return image


if __name__ == "__main__":
    torch.manual_seed(0)
    image = sample(Unet(), DDPMScheduler(num_train_timesteps=50), torch.randn(1, 1, 8, 8))
    print("image range", image.min().item(), image.max().item())
