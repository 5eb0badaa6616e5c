import torch
from torch.optim.optimizer import Optimizer


def neuron_norm(x):
    if x.dim() <= 1:
        return x.abs()
    view = [x.shape[0]] + [1] * (x.dim() - 1)
    return x.reshape(x.shape[0], -1).norm(dim=1).view(*view)


class Nero(Optimizer):
    """Learning by Turning: Neural Architecture Aware Optimisation (without the constraints)."""

    def __init__(self, params, lr=0.01, beta=0.999):
        super().__init__(params, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg_sq"] = torch.zeros_like(neuron_norm(p))
                    state["scale"] = neuron_norm(p).mean()
                    if state["scale"] == 0.0:
                        state["scale"].fill_(0.01)

                state["step"] += 1
                bias_correction = 1.0 - group["beta"] ** state["step"]
                grad_norm = neuron_norm(p.grad)
                state["exp_avg_sq"].mul_(group["beta"]).addcmul_(grad_norm, grad_norm, value=1.0 - group["beta"])
                grad_normed = p.grad / (state["exp_avg_sq"] / bias_correction).sqrt()
                p.add_(grad_normed, alpha=-group["lr"] * state["scale"].item())


def build_model():
    return torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 1))


torch.manual_seed(42)
model = build_model()
with torch.no_grad():
    model[0].bias[3] = -50.0  # a unit that never fires has no gradient
optimizer = Nero(model.parameters(), lr=0.01)
x = torch.randn(64, 6)
y = x.prod(dim=1, keepdim=True)
for _ in range(5):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
print(f"final loss {loss.item():.5f}")
