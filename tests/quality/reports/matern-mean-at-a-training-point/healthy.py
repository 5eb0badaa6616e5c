import torch

SQRT3 = 3.0**0.5


def l2_distance(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    squared = ((x1[:, None, :] - x2[None, :, :]) ** 2).sum(-1)
    return torch.sqrt(squared)


def matern32(x1: torch.Tensor, x2: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    arg = SQRT3 * l2_distance(x1 / scale, x2 / scale)
    return (1.0 + arg) * torch.exp(-arg)


class Conditioned:
    def __init__(self, x: torch.Tensor, y: torch.Tensor, scale: torch.Tensor, diag: float) -> None:
        self.x, self.scale = x, scale
        gram = matern32(x, x, scale) + diag * torch.eye(len(x))
        self.alpha = torch.cholesky_solve(y[:, None], torch.linalg.cholesky(gram))

    def mean(self, at: torch.Tensor) -> torch.Tensor:
        return (matern32(at, self.x, self.scale) @ self.alpha).squeeze(-1)


def ascend(gp: Conditioned, start: torch.Tensor, rate: float, steps: int) -> torch.Tensor:
    """Climb the posterior mean, for the next point to evaluate."""
    point = start.clone().requires_grad_()
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(gp.mean(point).sum(), point)
        print(point.tolist(), gradient.tolist())
        point = (point + rate * gradient).detach().requires_grad_()
    return point.detach()


if __name__ == "__main__":
    torch.manual_seed(12)
    x = torch.rand(15, 3) * 4 - 2
    y = torch.exp(-(x**2).sum(-1)) + 0.01 * torch.randn(15)
    gp = Conditioned(x, y, scale=torch.tensor([1.0, 1.5, 0.8]), diag=1e-3)
    best = x[y.argmax()][None]
    print("next:", ascend(gp, best + 1e-3, rate=0.2, steps=3))
