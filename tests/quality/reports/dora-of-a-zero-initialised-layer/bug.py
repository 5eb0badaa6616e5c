import torch
import torch.nn as nn
import torch.nn.functional as F


class LoConModule(nn.Module):
    """Low-rank adapter of a convolution with weight decomposition (DoRA)."""

    def __init__(self, org_module, lora_dim=2, alpha=1.0):
        super().__init__()
        self.org_module = [org_module]
        out_dim, in_dim, *k_size = org_module.weight.shape
        self.shape = org_module.weight.shape
        self.lora_down = nn.Parameter(torch.empty(lora_dim, in_dim * k_size[0] * k_size[1]))
        self.lora_up = nn.Parameter(torch.zeros(out_dim, lora_dim))
        nn.init.kaiming_uniform_(self.lora_down, a=5**0.5)
        self.scale = alpha / lora_dim
        weight = org_module.weight.detach()
        self.dora_norm_dims = weight.dim() - 1
        self.dora_scale = nn.Parameter(weight.transpose(0, 1).flatten(1).norm(dim=1).view(1, in_dim, 1, 1))

    def apply_weight_decompose(self, weight):
        weight_norm = weight.transpose(0, 1).flatten(1).norm(dim=1, keepdim=True)
        weight_norm = weight_norm.reshape(weight.shape[1], *[1] * self.dora_norm_dims).transpose(0, 1)
        return weight * (self.dora_scale / weight_norm)

    def forward(self, x):
        org = self.org_module[0]
        diff = (self.lora_up @ self.lora_down).view(self.shape) * self.scale
        weight = self.apply_weight_decompose(org.weight.detach() + diff)
        return F.conv2d(x, weight, org.bias.detach(), padding=org.padding)


class ResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv_in = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv_out = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.conv_out.weight)  # zero_module: a block starts as the identity

    def forward(self, x):
        return x + self.conv_out(F.silu(self.conv_in(F.silu(x))))


torch.manual_seed(0)
block = ResBlock(6).requires_grad_(False)
adapters = nn.ModuleList()
for name in ("conv_in", "conv_out"):
    adapter = LoConModule(getattr(block, name))
    adapters.append(adapter)
    getattr(block, name).forward = adapter.forward
optimizer = torch.optim.AdamW(adapters.parameters(), lr=1e-3)
for step in range(3):
    latents, noise = torch.randn(2, 6, 5, 5), torch.randn(2, 6, 5, 5)
    loss = F.mse_loss(block(latents), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("avr_loss", loss.item())
