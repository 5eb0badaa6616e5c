import torch
from torch import nn
from torch.optim import Optimizer


class DiffGradNorm(Optimizer):
    """Adam with a friction term, on gradients whose norm is corrected by its running mean."""

    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:  # noqa: ANN001
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "gamma": 0.95})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad, state = p.grad, self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                    state["exp_grad_norm"] = torch.zeros(())
                    state["previous_grad"] = torch.zeros_like(p)
                state["step"] += 1
                grad_norm = torch.linalg.norm(grad)
                state["exp_grad_norm"].mul_(group["gamma"]).add_(grad_norm, alpha=1 - group["gamma"])
                grad1 = grad
                if state["exp_grad_norm"] > grad_norm:
                    grad1 = grad * state["exp_grad_norm"] / grad_norm
                state["exp_avg"].mul_(beta1).add_(grad1, alpha=1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                friction = torch.sigmoid((state["previous_grad"] - grad).abs())
                state["previous_grad"] = grad.clone()
                correction = (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
                denom = state["exp_avg_sq"].sqrt().add_(group["eps"])
                p.addcdiv_(state["exp_avg"] * friction, denom, value=-group["lr"] * correction)


torch.manual_seed(71)
embedding, head = nn.Embedding(50, 8), nn.Linear(8, 4)
side = nn.Linear(8, 4)
optimizer = DiffGradNorm([*embedding.parameters(), *head.parameters(), *side.parameters()], lr=0.01)
for iteration in range(6):
    tokens, labels = torch.randint(50, (16,)), torch.randint(4, (16,))
    hidden = embedding(tokens)
    use_side = 1.0 if iteration % 3 == 0 else 0.0
    loss = nn.functional.cross_entropy(head(hidden) + use_side * side(hidden), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(iteration, loss.item())
