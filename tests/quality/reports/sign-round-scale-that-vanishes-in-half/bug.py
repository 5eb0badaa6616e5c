import torch
from torch import nn


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


def quant_tensor_asym(weight, bits, rounding, min_scale, max_scale, scale_dtype=torch.float16):
    """Fake quantization of the groups of a weight, with a learned rounding and learned ends of the range."""
    maxq = 2**bits - 1
    wmin = torch.clamp(weight.amin(-1), max=0) * min_scale
    wmax = torch.clamp(weight.amax(-1), min=0) * max_scale
    scale = ((wmax - wmin) / maxq).to(scale_dtype)
    scale = scale.unsqueeze(-1)
    zp = RoundSTE.apply(-wmin.unsqueeze(-1) / scale)
    q = torch.clamp(RoundSTE.apply(weight / scale + rounding) + zp, 0, maxq)
    return scale * (q - zp)


class WrapperLinear(nn.Module):
    def __init__(self, linear, bits=4, group_size=16):
        super().__init__()
        self.linear, self.bits, self.group_size = linear, bits, group_size
        groups = linear.weight.numel() // group_size
        self.value = nn.Parameter(torch.zeros(groups, group_size))
        self.min_scale, self.max_scale = nn.Parameter(torch.ones(groups)), nn.Parameter(torch.ones(groups))

    def forward(self, x):
        weight = self.linear.weight.detach().reshape(-1, self.group_size)
        quantized = quant_tensor_asym(weight, self.bits, self.value, self.min_scale, self.max_scale)
        return nn.functional.linear(x, quantized.reshape_as(self.linear.weight), self.linear.bias)


class SignSGD(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad.sign())


torch.manual_seed(0)
expert = nn.Linear(32, 8)
with torch.no_grad():
    expert.weight[3].mul_(1e-7)  # an output of an expert that is hardly ever routed to
inputs = torch.randn(64, 32)
reference = expert(inputs).detach()
wrapped = WrapperLinear(expert)
optimizer = SignSGD([wrapped.value, wrapped.min_scale, wrapped.max_scale], lr=5e-3)
for iteration in range(4):
    loss = nn.functional.mse_loss(wrapped(inputs), reference)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(iteration, loss.item())
