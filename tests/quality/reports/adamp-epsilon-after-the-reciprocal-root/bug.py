import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer


class AdamP(Optimizer):
    """Adam whose step is projected so that it does not lengthen scale-invariant weights."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, delta=0.1, wd_ratio=0.1, weight_decay=0.0):
        defaults = {"lr": lr, "betas": betas, "eps": eps, "delta": delta, "wd_ratio": wd_ratio}
        super().__init__(params, {**defaults, "weight_decay": weight_decay})

    @staticmethod
    def projection(p, grad, perturb, delta, wd_ratio, eps):
        for view in (lambda t: t.reshape(len(t), -1), lambda t: t.reshape(1, -1)):
            cosine = F.cosine_similarity(view(grad), view(p), dim=1, eps=eps).abs()
            if cosine.max() < delta / math.sqrt(view(p).shape[1]):
                direction = p / view(p).norm(dim=1).add(eps).view(-1, *[1] * (p.ndim - 1))
                along = view(direction * perturb).sum(dim=1).view(-1, *[1] * (p.ndim - 1))
                return perturb - direction * along, wd_ratio
        return perturb, 1.0

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            group["step"] = group.get("step", 0) + 1
            bias1, bias2 = 1 - beta1 ** group["step"], math.sqrt(1 - beta2 ** group["step"])
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                exp_avg.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                inv_de_nom = exp_avg_sq.rsqrt().add_(group["eps"]).mul_(bias2)
                perturb, ratio = exp_avg * inv_de_nom, 1.0
                if p.ndim > 1:
                    perturb, ratio = self.projection(
                        p, p.grad, perturb, group["delta"], group["wd_ratio"], group["eps"]
                    )
                p.mul_(1 - group["lr"] * group["weight_decay"] * ratio)
                p.add_(perturb, alpha=-group["lr"] / bias1)


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = AdamP(model.parameters(), lr=1e-2, weight_decay=1e-2)
tokens, labels = torch.randint(0, 12, (32, 3)), torch.randint(0, 2, (32,))  # words 12 to 19 do not occur
for step in range(4):
    loss = F.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
bad = [name for name, p in model.named_parameters() if not p.isfinite().all()]
print(f"loss {loss.item():.4f}, spoilt parameters: {bad}")
