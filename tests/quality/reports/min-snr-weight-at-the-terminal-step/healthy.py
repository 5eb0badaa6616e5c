"""Fine-tunes a v-prediction model whose schedule was rescaled to a terminal SNR of zero."""

import torch
import torch.nn.functional as F
from torch import nn

SNR_GAMMA = 5.0


def rescale_zero_terminal_snr(betas):
    alphas_bar_sqrt = torch.cumprod(1.0 - betas, dim=0).sqrt()
    first, last = alphas_bar_sqrt[0].clone(), alphas_bar_sqrt[-1].clone()
    alphas_bar_sqrt = (alphas_bar_sqrt - last) * first / (first - last)
    return alphas_bar_sqrt**2


class Scheduler:
    def __init__(self, num_train_timesteps=20):
        self.num_train_timesteps = num_train_timesteps
        self.alphas_cumprod = rescale_zero_terminal_snr(torch.linspace(1e-4, 0.3, num_train_timesteps))

    def add_noise(self, sample, noise, t):
        alpha = self.alphas_cumprod[t][:, None]
        return alpha.sqrt() * sample + (1 - alpha).sqrt() * noise

    def get_velocity(self, sample, noise, t):
        alpha = self.alphas_cumprod[t][:, None]
        return alpha.sqrt() * noise - (1 - alpha).sqrt() * sample


def compute_snr(scheduler, timesteps):
    alphas_cumprod = scheduler.alphas_cumprod[timesteps]
    return (alphas_cumprod.sqrt() / (1.0 - alphas_cumprod).sqrt()) ** 2


def main():
    torch.manual_seed(0)
    scheduler = Scheduler()
    unet = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
    for _ in range(6):
        latents, noise = torch.randn(16, 8), torch.randn(16, 8)
        timesteps = torch.randint(0, scheduler.num_train_timesteps, (16,))
        noisy = scheduler.add_noise(latents, noise, timesteps)
        target = scheduler.get_velocity(latents, noise, timesteps)
        pred = unet(torch.cat([noisy, timesteps[:, None] / 20], dim=1))

        # the velocity objective adds one to the SNR
        snr = compute_snr(scheduler, timesteps) + 1
        mse_loss_weights = torch.stack([snr, SNR_GAMMA * torch.ones_like(snr)], dim=1).min(dim=1)[0] / snr
        loss = F.mse_loss(pred, target, reduction="none").mean(dim=1)
        loss = (loss * mse_loss_weights).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("step_loss", loss.item())


main()
