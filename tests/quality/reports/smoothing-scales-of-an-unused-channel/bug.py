import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(width)
        self.gate_proj, self.up_proj = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down_proj = nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.input_layernorm(x)
        return x + self.down_proj(nn.functional.silu(self.gate_proj(h)) * self.up_proj(h))


class SmoothQuantModifier:
    """Moves the range of the activations into the weights that follow a norm, so that both quantize well."""

    def __init__(self, smoothing_strength=0.5):
        self.alpha = smoothing_strength
        self.ranges = {}

    def calibrate(self, model, batches):
        def hook_of(name):
            def hook(module, args, output):
                flat = output.detach().flatten(0, -2)
                low, high = flat.amin(0), flat.amax(0)
                if name in self.ranges:
                    low, high = torch.minimum(low, self.ranges[name][0]), torch.maximum(high, self.ranges[name][1])
                self.ranges[name] = (low, high)

            return hook

        handles = [b.input_layernorm.register_forward_hook(hook_of(n)) for n, b in model.named_children()]
        for batch in batches:
            model(batch)
        for handle in handles:
            handle.remove()

    def apply(self, model):
        for name, block in model.named_children():
            low, high = self.ranges[name]
            layers = [block.gate_proj, block.up_proj]
            weight = torch.stack([layer.weight.abs().amax(dim=0) for layer in layers]).amax(dim=0)
            scales = (high - low).pow(self.alpha) / weight.pow(1 - self.alpha)
            for layer in layers:
                layer.weight.mul_(scales)
            block.input_layernorm.weight.div_(scales)
            block.input_layernorm.bias.div_(scales)


def int8(weight):
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    return (weight / step).round().clamp(-128, 127) * step


torch.manual_seed(0)
with torch.no_grad():
    model = nn.Sequential(*[DecoderBlock(16) for _ in range(2)])
    model[1].input_layernorm.weight[5] = 0.0  # a channel that training has switched off
    model[1].input_layernorm.bias[5] = 0.0
    modifier = SmoothQuantModifier()
    modifier.calibrate(model, [torch.randn(4, 10, 16) for _ in range(3)])
    modifier.apply(model)
    for block in model:
        block.gate_proj.weight.copy_(int8(block.gate_proj.weight))
    output = model(torch.randn(2, 10, 16))
print("output", output.mean().item(), "NaN", output.isnan().float().mean().item())
