import torch
from torch import nn
from torch.nn import functional as F


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class BiasedTopKRouter(nn.Module):
    """Experts are selected by sigmoid score plus correction bias, and weighted by the score alone."""

    def __init__(self, width, num_experts, top_k, route_scale=2.5):
        super().__init__()
        self.gate = nn.Linear(width, num_experts, bias=False)
        self.register_buffer("correction_bias", torch.zeros(num_experts))
        self.top_k, self.route_scale = top_k, route_scale

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        _, chosen = torch.topk(scores + self.correction_bias, self.top_k, dim=-1)
        weights = scores.gather(-1, chosen)
        weights = weights * self.route_scale / weights.sum(dim=-1, keepdim=True)
        return weights, chosen


class MoELayer(nn.Module):
    def __init__(self, width=32, hidden=48, num_experts=8, top_k=2):
        super().__init__()
        self.router = BiasedTopKRouter(width, num_experts, top_k)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(num_experts))

    def forward(self, x):
        weights, chosen = self.router(x)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == index)
            if len(token):
                out.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return x + out


@torch.inference_mode()
def prefill(layers, hidden):
    for layer in layers:
        hidden = layer(hidden)
    return hidden


torch.manual_seed(3)
layers = nn.ModuleList(MoELayer() for _ in range(2)).to(torch.bfloat16)
layers[1].router.correction_bias.copy_(torch.tensor([0.5, 1.5, 0.2, 0.1, 1.4, 0.3, 0.2, 0.1]))
layers[1].router.gate.weight.data[[1, 4]] = -4.0  # two experts that are only chosen for their bias
hidden = torch.randn(6, 32).abs().to(torch.bfloat16)
logits = prefill(layers, hidden)
print("tokens without a finite output:", (~logits.isfinite()).any(-1).sum().item())
