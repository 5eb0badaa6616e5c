import torch
from torch import nn
from torch.optim import Optimizer


class AdaSmooth(Optimizer):
    """Adaptive learning rate method based on an effective ratio."""

    def __init__(self, params, lr=1e-3, betas=(0.5, 0.99), eps=1e-6):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["prev_param"] = torch.zeros_like(p)
                    state["s"] = torch.zeros_like(p)
                    state["n"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)

                p_diff = p - state["prev_param"]
                state["s"].add_(p_diff)
                state["n"].add_(p_diff.abs())
                c = state["s"].sum().abs() / (state["n"].sum() + group["eps"])
                c = c * (beta2 - beta1) + (1 - beta2)
                c_p2 = c.pow(2)
                state["exp_avg_sq"].mul_(1 - c_p2).add_(p.grad.square() * c_p2)
                step_size = p.grad * group["lr"] / (state["exp_avg_sq"] + group["eps"]).sqrt()
                state["prev_param"].copy_(p)
                p.sub_(step_size)


def logistic_regression():
    model = nn.Linear(4, 2)
    nn.init.zeros_(model.bias)
    return model


torch.manual_seed(42)
x = torch.randn(64, 4)
y = (x @ torch.tensor([1.0, -2.0, 0.5, 0.0]) > 0).long()
model = logistic_regression()
optimizer = AdaSmooth(model.parameters(), lr=5e-2)
first = None
for _ in range(10):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    first = first or loss.item()
    loss.backward()
    optimizer.step()
print(f"{first:.4f} -> {loss.item():.4f}")
