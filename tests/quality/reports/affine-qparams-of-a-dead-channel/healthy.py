import torch
from torch import nn


def choose_qparams_affine(x, quant_min, quant_max):
    """Per-channel scale and zero point, asymmetric."""
    min_val, max_val = torch.aminmax(x, dim=1, keepdim=True)
    min_val_neg = torch.min(min_val, torch.zeros_like(min_val))
    max_val_pos = torch.max(max_val, torch.zeros_like(max_val))
    scale = (max_val_pos - min_val_neg) / float(quant_max - quant_min)
    scale = torch.clamp(scale, min=torch.finfo(x.dtype).eps)
    zero_point = quant_min - torch.round(min_val_neg / scale)
    zero_point = torch.clamp(zero_point, quant_min, quant_max)
    return scale, zero_point


def fake_quantize_affine(x, scale, zero_point, quant_min, quant_max):
    q = torch.clamp(torch.round(x / scale) + zero_point, quant_min, quant_max)
    return x + ((q - zero_point) * scale - x).detach()  # straight through


class FakeQuantizedLinear(nn.Linear):
    quant_min, quant_max = -8, 7

    def forward(self, x):
        scale, zero_point = choose_qparams_affine(self.weight.detach(), self.quant_min, self.quant_max)
        weight = fake_quantize_affine(self.weight, scale, zero_point, self.quant_min, self.quant_max)
        return nn.functional.linear(x, weight, self.bias)


torch.manual_seed(0)
model = nn.Sequential(FakeQuantizedLinear(16, 32), nn.GELU(), FakeQuantizedLinear(32, 4))
with torch.no_grad():
    model[0].weight[5:9] = 0.0  # channels that were pruned before

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("qat loss", loss.item())
