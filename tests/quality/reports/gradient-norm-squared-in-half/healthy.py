import torch
from torch import nn
from torch.optim import Optimizer


class OSS(Optimizer):
    """An optimizer whose state lives on this rank; gradients are in the dtype of the model."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])

    def clip_grad_norm(self, max_norm, norm_type=2.0):
        """Clips by the norm of all gradients of this rank and of the others, and returns it."""
        grads = [p.grad.detach() for group in self.param_groups for p in group["params"] if p.grad is not None]
        local_norm = torch.norm(torch.stack([torch.norm(g, norm_type, dtype=torch.float32) for g in grads]), norm_type)
        total_norm = self.all_reduce(local_norm**norm_type) ** (1.0 / norm_type)

        clip_coef = torch.tensor(max_norm, dtype=total_norm.dtype) / (total_norm + 1e-6)
        if clip_coef < 1:
            for g in grads:
                g.mul_(clip_coef)
        return total_norm

    @staticmethod
    def all_reduce(value):
        return value


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).half()
optimizer = OSS(model.parameters(), lr=0.1)
loss_scale = 128.0
norms = []
for _ in range(3):
    inputs = torch.randn(16, 32).half()
    target = inputs.sum(dim=1, keepdim=True).float()
    loss = nn.functional.mse_loss(model(inputs).float(), target)
    model.zero_grad()
    (loss * loss_scale).backward()
    norms.append(optimizer.clip_grad_norm(1.0).item())
    optimizer.step()
print("gradient norms:", norms)
