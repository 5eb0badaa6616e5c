"""Gaussian process regression with the arc-cosine kernel of order 0, in float64."""

import math

import torch


class ArcCosine(torch.nn.Module):
    def __init__(self, input_dim: int) -> None:
        super().__init__()
        self.log_variance = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.log_weights = torch.nn.Parameter(torch.zeros(input_dim, dtype=torch.float64))
        self.log_bias = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def weighted_product(self, x: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
        return (self.log_weights.exp() * x) @ x2.T + self.log_bias.exp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = self.weighted_product(x, x)
        length = torch.sqrt(product.diagonal())
        cos_theta = product / length[:, None] / length[None, :]
        cos_theta = cos_theta.clamp(-1.0, 1.0)
        jitter = 1e-15
        theta = torch.acos(jitter + (1 - 2 * jitter) * cos_theta)
        return self.log_variance.exp() * (math.pi - theta) / math.pi


def gpr_objective(kernel: ArcCosine, log_noise: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    covariance = kernel(x) + log_noise.exp() * torch.eye(len(x), dtype=x.dtype)
    chol = torch.linalg.cholesky(covariance)
    alpha = torch.linalg.solve_triangular(chol, y[:, None], upper=False)
    return 0.5 * alpha.pow(2).sum() + chol.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)


torch.manual_seed(23)
x = torch.rand(6, 1, dtype=torch.float64)
y = torch.randn(6, dtype=torch.float64) * 0.1 + torch.sin(3 * x[:, 0])
kernel = ArcCosine(1)
log_noise = torch.nn.Parameter(torch.tensor(-2.0, dtype=torch.float64))
optimizer = torch.optim.Adam([*kernel.parameters(), log_noise], lr=0.05)
for _ in range(3):
    optimizer.zero_grad()
    objective = gpr_objective(kernel, log_noise, x, y)
    objective.backward()
    print(objective.item(), [p.grad.tolist() for p in kernel.parameters()])
    if not all(torch.isfinite(p.grad).all() for p in kernel.parameters()):
        break
    optimizer.step()
