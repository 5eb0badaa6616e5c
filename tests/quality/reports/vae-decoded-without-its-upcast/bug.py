import numpy as np
import torch
from torch import nn


class ResnetBlock2D(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels, eps=1e-6)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(nn.functional.silu(self.conv1(self.norm(x))))


class AutoencoderKL(nn.Module):
    """The decoder half; its residual stream is known to carry very large values."""

    scaling_factor = 0.13025
    force_upcast = True

    def __init__(self, channels=16):
        super().__init__()
        self.conv_in = nn.Conv2d(4, channels, 3, padding=1)
        self.blocks = nn.ModuleList(ResnetBlock2D(channels) for _ in range(3))
        self.norm_out = nn.GroupNorm(4, channels, eps=1e-6)
        self.conv_out = nn.Conv2d(channels, 3, 3, padding=1)
        with torch.no_grad():
            for block in self.blocks:
                block.conv1.weight.mul_(200)
                block.conv2.weight.mul_(900)

    @property
    def dtype(self):
        return self.conv_in.weight.dtype

    def decode(self, z):
        x = self.conv_in(z)
        for block in self.blocks:
            x = nn.functional.interpolate(block(x), scale_factor=2.0)
        return self.conv_out(nn.functional.silu(self.norm_out(x)))


class Pipeline:
    def __init__(self, vae, torch_dtype):
        self.vae = vae.to(torch_dtype)

    @torch.inference_mode()
    def __call__(self, latents):
        image = self.vae.decode(latents.to(self.vae.dtype) / self.vae.scaling_factor)
        image = (image / 2 + 0.5).clamp(0, 1).float()
        return image, np.nan_to_num(image.permute(0, 2, 3, 1).numpy() * 255).round().astype(np.uint8)


torch.manual_seed(0)
pipe = Pipeline(AutoencoderKL(), torch.float16)
image, pixels = pipe(torch.randn(1, 4, 4, 4))
print("brightest pixel:", pixels.max(), "share of NaN:", image.isnan().float().mean().item())
