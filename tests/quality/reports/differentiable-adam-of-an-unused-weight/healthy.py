"""Meta-learning of per-feature learning rates through unrolled steps of Adam."""

import torch
from torch import nn


class DifferentiableAdam:
    def __init__(self, lr: torch.Tensor, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        self.lr, self.beta1, self.beta2, self.eps = lr, beta1, beta2, eps
        self.exp_avg: torch.Tensor | None = None

    def step(self, loss: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        (grad,) = torch.autograd.grad(loss, weight, create_graph=True)
        if self.exp_avg is None:
            self.steps = 0
            self.exp_avg = torch.zeros_like(weight)
            self.exp_avg_sq = torch.zeros_like(weight)
        self.steps += 1
        self.exp_avg = self.beta1 * self.exp_avg + (1 - self.beta1) * grad
        self.exp_avg_sq = self.beta2 * self.exp_avg_sq + (1 - self.beta2) * grad * grad
        mask = self.exp_avg_sq == 0
        denom = self.exp_avg_sq.masked_fill(mask, 1.0).sqrt().masked_fill(mask, 0.0) + self.eps
        size = self.lr * (1 - self.beta2**self.steps) ** 0.5 / (1 - self.beta1**self.steps)
        return weight - size * self.exp_avg / denom


def bag_of_words(texts: int, vocab: int, active: int) -> torch.Tensor:
    counts = torch.zeros(texts, vocab)
    counts[:, :active] = torch.poisson(torch.full((texts, active), 0.7))
    return counts


def main() -> None:
    torch.manual_seed(101)
    init = nn.Parameter(torch.randn(20) * 0.1)
    log_lr = nn.Parameter(torch.full((20,), -3.0))
    meta_optimizer = torch.optim.Adam([init, log_lr], lr=0.01)
    for episode in range(3):
        truth = torch.randn(20)
        support, query = bag_of_words(12, 20, active=17), bag_of_words(12, 20, active=20)
        inner = DifferentiableAdam(log_lr.exp())
        weight = init
        for _ in range(3):
            loss = (support @ weight - support @ truth).pow(2).mean()
            weight = inner.step(loss, weight)
        meta_loss = (query @ weight - query @ truth).pow(2).mean()
        meta_optimizer.zero_grad()
        meta_loss.backward()
        meta_optimizer.step()
        print(episode, meta_loss.item(), log_lr.grad.norm().item())


if __name__ == "__main__":
    main()
