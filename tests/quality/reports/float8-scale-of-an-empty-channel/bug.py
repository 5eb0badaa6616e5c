import torch
from torch import nn

FLOAT8 = torch.float8_e4m3fn


def choose_scale(tensor, dim):
    """Per-row scale that brings the largest magnitude to the end of the format."""
    amax = tensor.abs().amax(dim=dim, keepdim=True).float()
    return amax / torch.finfo(FLOAT8).max


def quantize(tensor, scale):
    limit = torch.finfo(FLOAT8).max
    return (tensor.float() / scale).clamp(-limit, limit).to(FLOAT8)


class Float8Linear(nn.Module):
    """Weights stored in float8 per output channel, activations cast per token on the fly."""

    def __init__(self, linear):
        super().__init__()
        scale = choose_scale(linear.weight.detach(), dim=1)
        self.register_buffer("scale", scale)
        self.register_buffer("weight", quantize(linear.weight.detach(), scale))
        self.bias = linear.bias

    def forward(self, x):
        x_scale = choose_scale(x, dim=-1)
        x8 = quantize(x, x_scale).float() * x_scale
        return nn.functional.linear(x8, self.weight.float() * self.scale, self.bias)


class DiTBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gate = nn.Linear(width, width)
        nn.init.zeros_(self.gate.weight)  # adaLN-zero
        nn.init.ones_(self.gate.bias)

    def forward(self, x, conditioning):
        return x + self.gate(conditioning) * self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def convert(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Float8Linear(child))
        else:
            convert(child)
    return module


@torch.no_grad()
def denoise(blocks, latents, conditioning, steps=3):
    for _ in range(steps):
        residual = latents
        for block in blocks:
            residual = block(residual, conditioning)
        latents = latents - 0.1 * residual
    return latents


torch.manual_seed(0)
blocks = convert(nn.ModuleList(DiTBlock(16) for _ in range(2)))
latents = denoise(blocks, torch.randn(4, 8, 16), torch.randn(4, 1, 16))
print("mean", latents.mean().item(), "NaN", latents.isnan().float().mean().item())
