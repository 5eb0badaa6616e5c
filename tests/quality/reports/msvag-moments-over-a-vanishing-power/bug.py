import torch
from torch import nn
from torch.optim import Optimizer


class MSVAG(Optimizer):
    """Dissecting Adam: momentum with a variance adaptation of the step."""

    def __init__(self, params, lr=1e-2, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta})

    @staticmethod
    def get_rho(beta_power, beta):
        rho = (1.0 - beta_power**2) * (1.0 - beta) ** 2
        rho = rho / (1.0 - beta) / (1.0 + beta) / (1.0 - beta_power) ** 2
        return min(rho, 0.9999)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta = group["beta"]
            group["step"] = group.get("step", 0) + 1
            beta_power = beta ** group["step"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                exp_avg.mul_(beta).add_(p.grad, alpha=1.0 - beta)
                exp_avg_sq.mul_(beta).addcmul_(p.grad, p.grad, value=1.0 - beta)

                m = exp_avg.div(beta_power)
                v = exp_avg_sq.div(beta_power)

                rho = self.get_rho(beta_power, beta)
                m_p2 = m.pow(2)
                s = (v - m_p2).div_(1.0 - rho)
                factor = m_p2.div(m_p2 + rho * s)
                p.add_(m * factor, alpha=-group["lr"])


def linear_regression(samples=64):
    x = torch.randn(samples, 3)
    return x, x @ torch.tensor([[0.5], [-1.0], [2.0]]) + 0.1 * torch.randn(samples, 1)


torch.manual_seed(0)
x, y = linear_regression()
model = nn.Linear(3, 1)
optimizer = MSVAG(model.parameters(), lr=1e-2)
for step in range(700):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
print("weight", model.weight.tolist(), "loss", loss.item())
